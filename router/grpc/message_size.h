#pragma once

#include <cstddef>

#include <google/protobuf/io/zero_copy_stream.h>

#include "absl/status/status.h"

namespace baton {

// Returns the max bytes that a request can have in its message beside its text, for a model with
// this context.
size_t MaxBytesBesideText(int context);
// Checks the message of a GenerateRequest, of `size` bytes, before it is parsed. Returns
// InvalidArgument, with the number of bytes and the max, if it has more than MaxBytesBesideText().
// (Parsed, each of these bytes may take eight bytes of memory, and several such messages may come
// at once.) Returns OK for a message that is not valid, unless it is too long. Any thread.
absl::Status CheckBytesBesideText(google::protobuf::io::ZeroCopyInputStream* message, size_t size,
                                  int context);

}  // namespace baton
