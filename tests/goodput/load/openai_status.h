#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Returns the code that a record has for an HTTP status: the code with which Baton's gRPC would
// refuse the same request. 200 to 299 give kOk.
absl::StatusCode CodeOfHttpStatus(int status);

// Returns the message for people in the body of an error: `error.message`, `error`, `message` or
// `detail` of its JSON, or the body itself, which may be shortened, if it is none of these.
std::string MessageOfErrorBody(absl::string_view body);

}  // namespace baton
