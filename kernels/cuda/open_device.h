#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/kernels.h"

namespace baton {

// A device with the kernels that were compiled for it.
struct OpenedDevice {
  std::string name;  // cuda or cuda-emulated: what flags and numerics ids call its kind
  std::unique_ptr<DeviceRuntime> runtime;
  KernelTable kernels;
};

// The CUDA device of that number, as the driver counts those that this process may use.
// FailedPrecondition tells what is missing: a build with CUDA, a driver, a device; Internal, why
// the device that is there can't be used.
absl::StatusOr<OpenedDevice> OpenCudaDevice(int index);
// The device that tests use: a CPU that keeps a GPU's rules, thousands of times slower. The node
// has eight of them. `fails_after_kernels`: as EmulatedOptions.
absl::StatusOr<OpenedDevice> OpenEmulatedDevice(size_t memory_bytes, int index = 0,
                                                int64_t fails_after_kernels = 0);

}  // namespace baton
