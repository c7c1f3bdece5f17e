#include "kernels/device/cuda/cuda_runtime.h"

namespace baton {

absl::StatusOr<std::unique_ptr<DeviceRuntime>> CreateCudaRuntime(int) {
  return absl::FailedPreconditionError(
      "this program was built without CUDA: nvcc was not found then, or BATON_CUDA was OFF");
}

}  // namespace baton
