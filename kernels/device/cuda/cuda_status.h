#pragma once

#include <functional>

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Turns the result of a CUDA call into a status with CUDA's message: FailedPrecondition if a
// capture does not allow the call, Internal for all other errors. Also clears the thread's last
// error, so that the next call does not report it again.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

// Like CudaStatus, for calls that may also fail because of another process or the host. Such an
// error does not count as the end of CUDA: if CUDA has really ended, the next call reports it.
absl::Status CudaStatusOfOthers(cudaError_t error, absl::string_view call);

// Returns true if CUDA works again only in a new process: after an illegal address, memory that
// cannot be corrected, or a kernel that trapped, as the runtime's reference lists them, and after
// errors without a more specific name.
bool EndsCuda(cudaError_t error);
// Implements DeviceRuntime::OnFailure. CudaStatus calls the handler at the first of these errors.
// There is one handler per process, because these errors affect the whole process. Any thread.
void OnCudaFailure(std::function<void(const absl::Status&)> handler);

}  // namespace baton
