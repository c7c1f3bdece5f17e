#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/http/completion_request.h"

namespace baton {

// Reads the body of a request to /v1/chat/completions. The request has one prompt, which is a Chat.
// Everything else is as in ParseCompletionRequest(). Any thread; it may take long for a long body.
absl::StatusOr<CompletionRequest> ParseChatRequest(absl::string_view body,
                                                   const CompletionSettings& settings);

}  // namespace baton
