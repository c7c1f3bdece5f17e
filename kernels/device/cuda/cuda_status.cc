#include "kernels/device/cuda/cuda_status.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace baton {
namespace {

// The first error that ended CUDA in this process, and the handler to call with it.
struct CudaEnd {
  Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  std::function<void(const absl::Status&)> handler ABSL_GUARDED_BY(mutex);
};

CudaEnd& End() {
  static auto* end = new CudaEnd;
  return *end;
}

void Ended(const absl::Status& failure) {
  CudaEnd& end = End();
  MutexLock lock(&end.mutex);
  if (!end.failure.ok()) return;
  end.failure = failure;
  if (end.handler) end.handler(failure);
}

}  // namespace

bool EndsCuda(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case 226:  // cudaErrorContained; older toolkits have no name for it
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case 721:  // cudaErrorTensorMemoryLeak
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:  // reported for a GPU that the bus no longer reaches
      return true;
    default:
      return false;
  }
}

void OnCudaFailure(std::function<void(const absl::Status&)> handler) {
  CudaEnd& end = End();
  MutexLock lock(&end.mutex);
  end.handler = std::move(handler);
  if (!end.failure.ok() && end.handler) end.handler(end.failure);
}

absl::Status CudaStatusOfOthers(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string text =
      absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread) {
    return absl::FailedPreconditionError(text);
  }
  return absl::InternalError(text);
}

absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  const absl::Status status = CudaStatusOfOthers(error, call);
  if (EndsCuda(error)) Ended(status);
  return status;
}

}  // namespace baton
