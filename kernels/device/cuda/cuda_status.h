#pragma once

#include <functional>

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// What a call of the CUDA runtime returned, in its own words: FailedPrecondition for what a capture
// does not allow, Internal for all other errors. Takes back the thread's last error, so that the
// next call does not report it once more.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

// The same of calls that also fail for what another process or the host did: what has ended CUDA is
// then for the next call to say.
absl::Status CudaStatusOfOthers(cudaError_t error, absl::string_view call);

// Whether the process must end before CUDA works again: an address that is none, memory that can't
// be corrected, a kernel that trapped, as the runtime's reference says, and errors that have no
// other name.
bool EndsCuda(cudaError_t error);
// DeviceRuntime::OnFailure, called by CudaStatus at the first of these errors. The process's, as
// they are. Any thread.
void OnCudaFailure(std::function<void(const absl::Status&)> handler);

}  // namespace baton
