#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Device memory that only grows, so that a step which needs no more than earlier ones allocates
// nothing.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(DeviceRuntime* runtime) : runtime_(runtime) {}
  ~DeviceBuffer() { runtime_->Free(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Returns memory of at least `bytes`, valid until the next call. If the memory grows, its content
  // is lost. After ResourceExhausted the buffer is empty. After any other error, such as one during
  // graph capture, it is unchanged.
  absl::StatusOr<std::byte*> AtLeast(size_t bytes) {
    if (bytes <= bytes_) return memory_;
    const size_t wanted = std::max(bytes, bytes_ + bytes_ / 2);
    auto memory = runtime_->Allocate(wanted);
    // The old and the new memory do not fit side by side, so the old memory is freed first.
    if (absl::IsResourceExhausted(memory.status()) && memory_ != nullptr) {
      runtime_->Free(memory_);
      memory_ = nullptr;
      bytes_ = 0;
      memory = runtime_->Allocate(wanted);
    }
    RETURN_IF_ERROR(memory.status());
    runtime_->Free(memory_);
    memory_ = *memory;
    bytes_ = wanted;
    return memory_;
  }
  // Null before the first call of AtLeast, and after ResourceExhausted.
  std::byte* data() const { return memory_; }

 private:
  DeviceRuntime* const runtime_;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace baton
