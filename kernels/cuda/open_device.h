#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// A device with the kernels that were compiled for it.
struct OpenedDevice {
  std::string name;  // what flags and numerics ids call its kind: "cuda" of a GPU
  std::unique_ptr<DeviceRuntime> runtime;
  KernelTable kernels;
};

// The CUDA device of that number, as the driver counts those that this process may use.
// FailedPrecondition tells what is missing: a build with CUDA, a driver, a device; Internal, why
// the device that is there can't be used.
absl::StatusOr<OpenedDevice> OpenCudaDevice(int index);

}  // namespace baton
