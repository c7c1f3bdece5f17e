#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cuda/testing/kernel_cases.h"
#include "kernels/device/cuda/cuda_runtime.h"

namespace baton {

absl::StatusOr<TestedKernels> OpenTestedKernels() {
  ASSIGN_OR_RETURN(auto runtime, CreateCudaRuntime(0));
#ifdef BATON_HAVE_CUDA
  return TestedKernels{CudaKernels(), std::move(runtime)};
#else
  return absl::FailedPreconditionError("built without CUDA");
#endif
}

}  // namespace baton
