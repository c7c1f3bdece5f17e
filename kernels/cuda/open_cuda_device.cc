#include <utility>

#include "kernels/cuda/open_device.h"
#ifdef BATON_HAVE_CUDA
#include "common/base/status_macros.h"
#include "kernels/device/cuda/cuda_runtime.h"
#endif

namespace baton {

absl::StatusOr<OpenedDevice> OpenCudaDevice([[maybe_unused]] int index) {
#ifdef BATON_HAVE_CUDA
  ASSIGN_OR_RETURN(auto runtime, CreateCudaRuntime(index));
  return OpenedDevice{"cuda", std::move(runtime), CudaKernels()};
#else
  return absl::FailedPreconditionError(
      "this program was built without CUDA: build it where nvcc is found (BATON_CUDA), or take "
      "--backend=cpu");
#endif
}

}  // namespace baton
