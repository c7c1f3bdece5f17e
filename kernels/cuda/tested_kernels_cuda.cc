#include <utility>

#include "kernels/cuda/cuda_runtime.h"
#include "kernels/cuda/kernel_cases.h"

namespace baton {

absl::StatusOr<TestedKernels> OpenTestedKernels() {
  auto runtime = CreateCudaRuntime(0);
  if (!runtime.ok()) return runtime.status();
#ifdef BATON_HAVE_CUDA
  return TestedKernels{CudaKernels(), *std::move(runtime)};
#else
  return absl::FailedPreconditionError("built without CUDA");
#endif
}

}  // namespace baton
