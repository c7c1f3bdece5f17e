#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton {

// One row of the table that turns statuses into errors of the OpenAI protocol.
struct OpenAiErrorKind {
  absl::StatusCode status;
  int http;                // Status of HTTP.
  absl::string_view type;  // `error.type`
  absl::string_view code;  // `error.code` of a status that has no reason; empty: null.
};

// Returns the table, in the order of the HTTP statuses. A status that is not in it is an internal
// error. Any thread.
absl::Span<const OpenAiErrorKind> OpenAiErrorKinds();

// An answer over HTTP that says why there is no other one.
struct OpenAiError {
  int http = 500;
  std::vector<std::pair<std::string, std::string>>
      fields;  // Fields of the head, Content-Type included.
  std::string body;
};

// Turns a status that is not OK into an answer. The status may have a time to come again
// (RetryAfter()), a parameter (ParameterOf()) and a reason (ReasonOf()). Any thread.
// - Retry-After is in whole seconds, rounded up, and retry-after-ms in milliseconds. A status
//   Unavailable without a time gets one second.
// - `x-should-retry: false` tells OpenAI's clients not to retry DeadlineExceeded and Unimplemented,
//   whose HTTP statuses they would retry by themselves.
OpenAiError ToOpenAiError(const absl::Status& status);

// Makes an answer for an error that only HTTP has, such as 413. `type` is empty for
// "invalid_request_error", and `code` is empty for null. Any thread.
OpenAiError MakeOpenAiError(int http, absl::string_view message, absl::string_view code = "",
                            absl::string_view type = "");

// Appends the object {"error":{"message","type","param","code"}} for a status that is not OK. It is
// the body of an answer, and the data of an event that ends a stream. Any thread.
void AppendOpenAiErrorBody(const absl::Status& status, std::string* out);

}  // namespace baton
