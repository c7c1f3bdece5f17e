#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace baton {

// Bytes this process may still take: the machine's available memory, or what the control group
// leaves of its limit where that is less.
size_t AvailableMemoryBytes();

// ResourceExhausted with the arithmetic when `bytes` is more than what is available. Shared memory
// must ask before it maps: a segment that is too large is granted and kills its writer later.
absl::Status CheckMemoryFor(size_t bytes);

}  // namespace baton
