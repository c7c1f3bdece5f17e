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

size_t UploadSlab::CapacityFor(size_t bytes) {
  constexpr size_t kLeast = 4096, kAlignment = 256;
  return (std::max(bytes, kLeast) + kAlignment - 1) / kAlignment * kAlignment;
}

absl::Status UploadSlab::Reserve(size_t bytes) {
  if (bytes <= capacity_ && device_ != nullptr) return absl::OkStatus();
  absl::Status status = Grow(bytes);
  if (!status.ok()) Clear();
  return status;
}

absl::Status UploadSlab::Grow(size_t bytes) {
  const size_t wanted = CapacityFor(std::max(bytes, 2 * capacity_));
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
  if (absl::Status status = Reserve(content.size()); !status.ok()) return status;
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
