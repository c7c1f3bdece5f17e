#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// What cudaGetDeviceCount said where `driver` is the CUDA version that the driver is made for
// (12080 is 12.8; 0: there is no driver). FailedPrecondition for a machine without driver or GPU;
// Internal for one that has them and can't use them, and for a driver older than the toolkit of
// this build, with both versions.
absl::Status CudaDeviceCountStatus(cudaError_t error, int driver);

// The `device`-th GPU that CUDA shows, which is current from then on. FailedPrecondition, with
// CUDA's words, when there is none, or one older than sm_80; Internal as CudaDeviceCountStatus.
absl::StatusOr<cudaDeviceProp> FindCudaDevice(int device);

DeviceInfo CudaDeviceInfo(const cudaDeviceProp& properties);

// What lies between the `device`-th and another GPU, as DeviceRuntime::LinkTo tells it.
std::string CudaLink(int device, absl::string_view other_id);

}  // namespace baton
