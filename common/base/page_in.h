#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace baton {

// Callback of the functions below, which work through memory in pieces. Called before each piece,
// and at the end, with the number of bytes that are done. If it returns an error, the work stops
// and the function returns this error.
using PageInStep = std::function<absl::Status(uint64_t done_bytes)>;

// Allocates every page of fresh writable memory now, so that a lack of memory is found here and not
// at the first use. Contents stay as they are. Returns ResourceExhausted when the kernel has no
// page left. Kernels before 5.14 can't report this: on them a lack of memory kills the process.
absl::Status PageInForWriting(std::byte* data, size_t bytes, const PageInStep& step);

// Reads every page of a mapped file once. Later accesses then do not wait for the disk while the
// pages stay in the page cache. Returns DataLoss when the file can't be read or has become shorter.
absl::Status PageInForReading(const std::byte* data, size_t bytes, const PageInStep& step);

}  // namespace baton
