#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "kernels/backend/backend.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Brings weights to the device as bf16: converted a piece at a time into one of two pinned buffers,
// while the other one's copy is under way.
class WeightUpload {
 public:
  // Both must outlive this.
  WeightUpload(DeviceRuntime* runtime, DeviceStream* stream) : runtime_(runtime), stream_(stream) {}
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // `host`, at any alignment, has been read when the call returns; `device` has room for
  // rows * cols bf16, and holds them for what is put on the stream from now on.
  absl::Status Upload(const Matrix& host, std::byte* device);

 private:
  static constexpr int kBuffers = 2;
  static constexpr size_t kBufferBytes = 4 << 20;

  absl::Status Prepare();

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  std::byte* pinned_[kBuffers] = {};
  std::unique_ptr<DeviceEvent> copied_[kBuffers];
  int next_ = 0;
};

}  // namespace baton
