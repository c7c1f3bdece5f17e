#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// A GPU, by the CUDA runtime and cuBLASLt, the `device`-th that CUDA shows. Runs kernels of
// cuda_kernels. FailedPrecondition, with CUDA's words, when this build has no CUDA, or there is no
// driver, no such device, or one older than sm_80; Internal when there is a GPU that CUDA can't
// use, as with a driver older than the toolkit. Without cuBLASLt the runtime is made all the same,
// and its ProductStatus() is an error. A compute stream takes CudaProducts::kWorkspaceBytes of the
// device's memory, unless there is no cuBLASLt.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateCudaRuntime(int device);

}  // namespace baton
