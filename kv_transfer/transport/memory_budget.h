#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace baton {

// Returns ResourceExhausted, with the sizes, if `bytes` is more than this process may still use
// (common/base/usable_memory.h). Call it before mapping shared memory: the kernel grants a segment
// that is too large, and kills the process that later writes to it.
absl::Status CheckMemoryFor(size_t bytes);

}  // namespace baton
