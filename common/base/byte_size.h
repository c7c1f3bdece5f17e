#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// A number of bytes, for flags. "4Gi" and "4GiB" mean 4 x 2^30, "4G" and "4GB" mean 4 x 10^9. K, M,
// T and P work the same way. Upper and lower case are equal. "1.5Gi" and a plain number of bytes
// are accepted too.
struct ByteSize {
  uint64_t bytes = 0;
};

// Parses a size such as "4Gi" or "1500M". Returns InvalidArgument, with the text and the accepted
// forms, for a text that is not a size.
absl::StatusOr<uint64_t> ParseByteSize(absl::string_view text);

// Returns the shortest text that ParseByteSize reads as exactly `bytes`: "4Gi", "1500M", or digits
// only.
std::string ByteSizeText(uint64_t bytes);

// Returns a rounded size for people, in powers of ten as disks and model hubs count: "16.1 GB",
// "523 MB", "12 kB".
std::string RoundedBytes(uint64_t bytes);

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(const ByteSize& size);

}  // namespace baton
