#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Creates the runtime of a GPU, the `device`-th that CUDA shows, from the CUDA runtime and
// cuBLASLt. It runs the kernels of cuda_kernels. A compute stream takes
// CudaGemms::kWorkspaceBytes of device memory.
//
// Returns FailedPrecondition, with CUDA's message, if this build has no CUDA, or there is no
// driver, no such device, or one older than sm_80. Returns Internal if CUDA cannot use the GPU, for
// example if the driver is older than the toolkit. Without cuBLASLt the runtime works, but its
// GemmStatus() is an error and compute streams take no workspace.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateCudaRuntime(int device);

}  // namespace baton
