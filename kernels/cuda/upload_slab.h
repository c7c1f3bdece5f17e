#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// The way of a small host array to the device: pinned memory and one asynchronous copy, and none
// while the content stays what it was, as it does from layer to layer. Waits for the device only
// when four copies are under way, allocates only when the content outgrows what there was.
class UploadSlab {
 public:
  // Both must outlive the slab.
  UploadSlab(DeviceRuntime* runtime, DeviceStream* stream) : runtime_(runtime), stream_(stream) {}
  ~UploadSlab();
  UploadSlab(const UploadSlab&) = delete;
  UploadSlab& operator=(const UploadSlab&) = delete;

  // Room for `bytes`, in device memory of CapacityFor(bytes); what was there is lost if it grows.
  absl::Status Reserve(size_t bytes);
  static size_t CapacityFor(size_t bytes);

  // Device memory, aligned to 256, that holds `content` for what is put on the stream until the
  // next call. An error leaves the slab empty.
  absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> content);
  // Goes up whenever other content was uploaded; 0 before the first.
  uint64_t version() const { return version_; }

 private:
  static constexpr int kSlots = 4;

  absl::Status Grow(size_t bytes);
  void Clear();

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  std::byte* device_ = nullptr;
  std::byte* pinned_ = nullptr;  // [kSlots][capacity_]
  std::unique_ptr<DeviceEvent> copied_[kSlots];
  size_t capacity_ = 0;
  int slot_ = 0;  // of the latest content
  size_t bytes_ = 0;
  bool holds_ = false;
  uint64_t version_ = 0;
};

}  // namespace baton
