#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// What a call of the CUDA runtime returned, in its own words: FailedPrecondition for what a capture
// does not allow, Internal for all other errors. Takes back the thread's last error, so that the
// next call does not report it once more.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

}  // namespace baton
