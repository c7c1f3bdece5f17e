#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/conformance/backend_conformance.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/open_device.h"
#include "kernels/device/emulated/emulated_runtime.h"

namespace baton {

// Returns an emulated device that checks every access.
inline OpenedDevice StrictDevice() {
  auto runtime = CreateEmulatedRuntime({.memory_bytes = size_t{256} << 20, .check = true});
  return {"cuda-emulated", std::move(runtime).value(), EmulatedKernels()};
}

// A device, and a stream for the copies that tests make.
class TestDevice {
 public:
  explicit TestDevice(OpenedDevice device = StrictDevice())
      : device_(std::move(device)), stream_(runtime().CreateStream().value()) {}

  DeviceRuntime& runtime() const { return *device_.runtime; }
  DeviceStream* stream() const { return stream_.get(); }
  // Creates a backend on this device.
  absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(CudaBackendOptions options = {}) const {
    options.runtime = &runtime();
    options.kernels = device_.kernels;
    options.name = device_.name;
    options.gemms = runtime().GemmStatus().ok();
    return CreateCudaBackend(options);
  }
  // Copies, and waits until the copy has run.
  void Copy(void* to, const void* from, size_t bytes) const {
    EXPECT_EQ(runtime().Copy(to, from, bytes, *stream_), absl::OkStatus());
    EXPECT_EQ(runtime().Synchronize(*stream_), absl::OkStatus());
  }

 private:
  const OpenedDevice device_;
  const std::unique_ptr<DeviceStream> stream_;
};

// Returns the parameters for conformance tests of a backend on this device, emulated or real.
inline ConformanceParam ParamOf(const std::string& name, OpenedDevice opened) {
  const bool emulated = opened.name != "cuda";
  const auto device = std::make_shared<TestDevice>(std::move(opened));
  const auto copy = [device](void* to, const void* from, size_t bytes) {
    device->Copy(to, from, bytes);
  };
  return {.name = name,
          .create = [device](int) { return device->CreateBackend(); },
          .allocate =
              [device](size_t bytes) {
                return std::shared_ptr<std::byte>(
                    device->runtime().Allocate(bytes).value(),
                    [device](std::byte* memory) { device->runtime().Free(memory); });
              },
          .upload = copy,
          .download = copy,
          .max_threads = 1,
          .bf16_gemms = true,
          .bf16_tensors = true,
          .rounded_attention_weights = true,
          .slow = emulated,
          .batch_invariant_gemms = emulated,
          .gemms = device->runtime().GemmStatus()};
}

}  // namespace baton
