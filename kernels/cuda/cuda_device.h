#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/device_runtime.h"

namespace baton {

// The `device`-th GPU that CUDA shows, which is current from then on. FailedPrecondition, with
// CUDA's words, when there is none, or one older than sm_80.
absl::StatusOr<cudaDeviceProp> FindCudaDevice(int device);

DeviceInfo CudaDeviceInfo(const cudaDeviceProp& properties);

// What lies between the `device`-th and another GPU, as DeviceRuntime::LinkTo tells it.
std::string CudaLink(int device, absl::string_view other_id);

}  // namespace baton
