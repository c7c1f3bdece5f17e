#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace baton {

// ResourceExhausted with the arithmetic when `bytes` is more than what this process may still use
// (common/base/usable_memory.h). Shared memory must ask before it maps: a segment that is too large
// is granted, and its writer is killed later.
absl::Status CheckMemoryFor(size_t bytes);

}  // namespace baton
