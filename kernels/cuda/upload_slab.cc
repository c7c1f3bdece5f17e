#include "kernels/cuda/upload_slab.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status_macros.h"

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
  constexpr size_t kMin = 4096, kAlignment = 256;
  return (std::max(bytes, kMin) + kAlignment - 1) / kAlignment * kAlignment;
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
  ASSIGN_OR_RETURN(auto device, runtime_->Allocate(wanted));
  device_ = device;
  ASSIGN_OR_RETURN(auto pinned, runtime_->AllocatePinned(kSlots * wanted));
  pinned_ = pinned;
  for (auto& event : copied_) {
    ASSIGN_OR_RETURN(auto made, runtime_->CreateEvent());
    event = std::move(made);
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
  RETURN_IF_ERROR(Reserve(content.size()));
  slot_ = (slot_ + 1) % kSlots;
  std::byte* const pinned = pinned_ + slot_ * capacity_;
  RETURN_IF_ERROR(runtime_->Synchronize(*copied_[slot_]));
  if (!content.empty()) {
    std::memcpy(pinned, content.data(), content.size());
    RETURN_IF_ERROR(runtime_->Copy(device_, pinned, content.size(), *stream_));
    RETURN_IF_ERROR(runtime_->Record(*copied_[slot_], *stream_));
  }
  bytes_ = content.size();
  holds_ = true;
  ++version_;
  return device_;
}

}  // namespace baton
