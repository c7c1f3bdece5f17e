#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Brings a small host array to the device through pinned memory, in one asynchronous copy. Nothing
// is copied if the content is the same as last time, as it often is from one layer to the next.
// Waits for the device only if four copies are still running. Allocates only if the content is
// larger than ever before.
class UploadSlab {
 public:
  // The arguments must outlive this object.
  UploadSlab(DeviceRuntime* runtime, DeviceStream* stream) : runtime_(runtime), stream_(stream) {}
  ~UploadSlab();
  UploadSlab(const UploadSlab&) = delete;
  UploadSlab& operator=(const UploadSlab&) = delete;

  // Allocates memory for contents of up to `bytes`; the device memory then has CapacityFor(bytes)
  // bytes. If the device memory grows, its content is lost.
  absl::Status Reserve(size_t bytes);
  static size_t CapacityFor(size_t bytes);

  // Returns device memory, aligned to 256 bytes, that holds `content` for all work that is enqueued
  // before the next call of Upload. After an error the slab is empty.
  absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> content);
  // Increased each time that different content is uploaded; 0 before the first upload.
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
  int slot_ = 0;  // slot of the latest content
  size_t bytes_ = 0;
  bool holds_ = false;
  uint64_t version_ = 0;
};

}  // namespace baton
