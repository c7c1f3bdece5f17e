#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace baton {

// Asked before each piece with the bytes that are done; an error ends the work with that error.
using PageInStep = std::function<absl::Status(uint64_t done_bytes)>;

// Takes every page of fresh writable memory now, so that a lack of memory shows here and not when
// the memory is first used. Contents stay as they are. ResourceExhausted when the kernel has no
// page. Where the kernel is too old to answer (before 5.14), a lack of memory ends the process.
absl::Status PageInForWriting(std::byte* data, size_t bytes, const PageInStep& step);

// Reads every page of a mapped file once, so that no later access waits for the disk while the page
// cache keeps it. DataLoss when the file can't be read or has become shorter.
absl::Status PageInForReading(const std::byte* data, size_t bytes, const PageInStep& step);

}  // namespace baton
