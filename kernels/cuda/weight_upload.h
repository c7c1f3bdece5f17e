#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend/backend.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Copies weights to the device as bf16; quantised ones too, rounded. It converts one piece at a
// time into one of two pinned buffers, while the other buffer is being copied.
class WeightUpload {
 public:
  // The arguments must outlive this object.
  WeightUpload(DeviceRuntime* runtime, DeviceStream* stream) : runtime_(runtime), stream_(stream) {}
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Copies `host`, which may have any alignment and is no longer needed when the call returns.
  // `device` must have space for rows * cols bf16 values. Work that is enqueued on the stream
  // afterwards sees the copied weights.
  absl::Status Upload(const Matrix& host, std::byte* device);

 private:
  static constexpr int kBuffers = 2;
  static constexpr size_t kBufferBytes = 4 << 20;

  absl::Status Prepare();

  DeviceRuntime* const runtime_;
  DeviceStream* const stream_;
  std::byte* pinned_[kBuffers] = {};
  std::unique_ptr<DeviceEvent> copied_[kBuffers];
  std::vector<float> wide_;  // values of quantised weights
  int next_ = 0;
};

}  // namespace baton
