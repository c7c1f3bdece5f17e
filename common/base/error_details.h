#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Facts that a status carries beside its code and its sentence, so that no program has to read the
// sentence. They are payloads in the form of google.rpc.BadRequest and google.rpc.ErrorInfo, which
// gRPC's client libraries know. See also common/rpc/retry_after.h. Any thread.

// Reasons, as OpenAI's API names them.
inline constexpr char kContextLengthExceeded[] = "context_length_exceeded";
inline constexpr char kModelNotFound[] = "model_not_found";

// Returns InvalidArgument for a parameter of a request, such as "max_tokens" or "stop[3]".
absl::Status BadParameter(absl::string_view parameter, absl::string_view message);
// Adds the name of the parameter that is at fault. Names of more than 100 bytes are cut.
absl::Status WithParameter(absl::Status status, absl::string_view parameter);
// Adds a reason that programs know by name, of up to 100 bytes.
absl::Status WithReason(absl::Status status, absl::string_view reason);
// Return "" if the status has none.
std::string ParameterOf(const absl::Status& status);
std::string ReasonOf(const absl::Status& status);

}  // namespace baton
