#include <utility>

#include "kernels/cuda/open_device.h"
#ifdef BATON_HAVE_CUDA
#include "kernels/cuda/cuda_runtime.h"
#endif

namespace baton {

absl::StatusOr<OpenedDevice> OpenCudaDevice([[maybe_unused]] int index) {
#ifdef BATON_HAVE_CUDA
  auto runtime = CreateCudaRuntime(index);
  if (!runtime.ok()) return runtime.status();
  return OpenedDevice{"cuda", *std::move(runtime), CudaKernels()};
#else
  return absl::FailedPreconditionError(
      "this program was built without CUDA: build it where nvcc is found (BATON_CUDA), or take "
      "--backend=cpu");
#endif
}

}  // namespace baton
