#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// A device with the kernels that were compiled for it.
struct OpenedDevice {
  std::string name;  // kind of device, as in flags and numerics ids; "cuda" for a GPU
  std::unique_ptr<DeviceRuntime> runtime;
  KernelTable kernels;
};

// Opens the CUDA device with this number, as the driver counts the devices visible to this process.
// FailedPrecondition tells what is missing: CUDA in the build, a driver or a device. Internal tells
// why an existing device can't be used.
absl::StatusOr<OpenedDevice> OpenCudaDevice(int index);

}  // namespace baton
