#include "kernels/cuda/upload_slab.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace baton {

UploadSlab::~UploadSlab() { Clear(); }

void UploadSlab::Clear() {
  holds_ = false;
  capacity_ = 0;
  runtime_->Free(std::exchange(device_, nullptr));
  runtime_->FreePinned(std::exchange(pinned_, nullptr));
  for (auto& event : copied_) event = nullptr;
}

absl::Status UploadSlab::Grow(size_t bytes) {
  constexpr size_t kAlignment = 256;
  const size_t wanted = (std::max(bytes, std::max<size_t>(2 * capacity_, 4096)) + kAlignment - 1) /
                        kAlignment * kAlignment;
  Clear();
  auto device = runtime_->Allocate(wanted);
  if (!device.ok()) return device.status();
  device_ = *device;
  auto pinned = runtime_->AllocatePinned(kSlots * wanted);
  if (!pinned.ok()) return pinned.status();
  pinned_ = *pinned;
  for (auto& event : copied_) {
    auto made = runtime_->CreateEvent();
    if (!made.ok()) return made.status();
    event = *std::move(made);
  }
  capacity_ = wanted;
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> UploadSlab::Upload(absl::Span<const std::byte> content) {
  if (holds_ && content.size() == bytes_ &&
      (bytes_ == 0 || std::memcmp(pinned_ + slot_ * capacity_, content.data(), bytes_) == 0)) {
    return device_;
  }
  holds_ = false;
  if (content.size() > capacity_ || device_ == nullptr) {
    if (absl::Status status = Grow(content.size()); !status.ok()) {
      Clear();
      return status;
    }
  }
  slot_ = (slot_ + 1) % kSlots;
  std::byte* const pinned = pinned_ + slot_ * capacity_;
  if (absl::Status status = runtime_->Synchronize(*copied_[slot_]); !status.ok()) return status;
  if (!content.empty()) {
    std::memcpy(pinned, content.data(), content.size());
    if (absl::Status status = runtime_->Copy(device_, pinned, content.size(), *stream_);
        !status.ok()) {
      return status;
    }
    if (absl::Status status = runtime_->Record(*copied_[slot_], *stream_); !status.ok()) {
      return status;
    }
  }
  bytes_ = content.size();
  holds_ = true;
  ++version_;
  return device_;
}

}  // namespace baton
