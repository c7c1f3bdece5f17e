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

// Like CudaStatus, but for calls that can also fail because of another process or the host. So an
// error of such a call is not reported to OnCudaFailure. If CUDA has really failed for this
// process, the next call reports it.
absl::Status CudaStatusOfOthers(cudaError_t error, absl::string_view call);

// Returns true if the error ends CUDA for this process, so that CUDA works again only in a new
// process. The CUDA runtime's reference lists these errors: an illegal address, memory that cannot
// be corrected, a kernel that trapped, and others. Also returns true for errors without a more
// specific name.
bool EndsCuda(cudaError_t error);
// Implements DeviceRuntime::OnFailure. CudaStatus calls the handler at the first error for which
// EndsCuda returns true. There is one handler per process, because such an error affects the whole
// process. Any thread.
void OnCudaFailure(std::function<void(const absl::Status&)> handler);

}  // namespace baton
