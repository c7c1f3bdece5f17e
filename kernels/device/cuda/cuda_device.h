#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Turns the result of cudaGetDeviceCount into a status. `driver` is the CUDA version that the
// driver supports (12080 is 12.8; 0: there is no driver). Returns FailedPrecondition for a machine
// without driver or GPU. Returns Internal if the machine has both but CUDA cannot use them, and if
// the driver is older than this build's toolkit; the message then has both versions.
absl::Status CudaDeviceCountStatus(cudaError_t error, int driver);

// Returns the properties of the `device`-th GPU that CUDA shows, and makes it the current device.
// Returns FailedPrecondition, with CUDA's message, if there is no such GPU or it is older than
// sm_80, and Internal in the same cases as CudaDeviceCountStatus.
absl::StatusOr<cudaDeviceProp> FindCudaDevice(int device);

DeviceInfo CudaDeviceInfo(const cudaDeviceProp& properties);

// Returns the kind of link between the `device`-th GPU and another one, in the words of
// DeviceRuntime::LinkTo.
std::string CudaLink(int device, absl::string_view other_id);

}  // namespace baton
