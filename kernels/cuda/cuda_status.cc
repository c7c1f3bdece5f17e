#include "kernels/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string text =
      absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread) {
    return absl::FailedPreconditionError(text);
  }
  return absl::InternalError(text);
}

}  // namespace baton
