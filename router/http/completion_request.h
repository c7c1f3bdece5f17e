#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "router/door/client_request.h"
#include "router/http/ignored_fields.h"

namespace baton {

// Options of a request that decide how its answer looks.
struct CompletionShape {
  bool chat = false;  // The request came to /v1/chat/completions.
  bool stream = false;
  bool include_usage = false;     // The stream ends with a chunk that has the usage.
  bool continuous_usage = false;  // Each chunk of the stream has the usage so far.
  bool echo = false;              // Each answer begins with the prompt.
  // `max_tokens` 0 with `echo`: the answer is the prompt alone. The core generates one token, which
  // is dropped.
  bool score_only = false;
  std::optional<int> logprobs;         // Alternatives for each token; 0: the token alone.
  std::optional<int> prompt_logprobs;  // The same for the list `prompt_logprobs` of the answer.
  bool return_token_ids = false;
  bool timing =
      false;  // The usage has the time of each phase. From a header, so the caller sets it.
  int n = 1;  // Answers to each prompt.
  // The stop strings and stop tokens of the request, without those of the model. They decide what
  // `stop_reason` says.
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
};

// A request to /v1/completions or /v1/chat/completions.
struct CompletionRequest {
  // One for each prompt, equal except for it. Request ids, modes and latency targets come from
  // headers, so the caller sets them.
  std::vector<ClientRequest> prompts;
  CompletionShape shape;
  IgnoredFields ignored;
  std::vector<std::string> warnings;  // Sentences for the log about fields that have no effect.
};

struct CompletionSettings {
  // True if the model's folder gives a temperature. Otherwise a request without one gets 1.
  bool model_has_temperature = false;
  // True: a field that is not known is refused. False: it is ignored, and named in `ignored`.
  bool refuse_unknown_fields = false;
  // Max tokens of prompt and answer together. Longer lists of ids are refused before they take
  // memory. 0: there is no limit.
  size_t context_tokens = 0;
};

inline constexpr size_t kMaxPrompts = 64;
inline constexpr size_t kMaxAnswersOfRequest = 256;

// Reads the body of a request to /v1/completions. Returns InvalidArgument with the parameter
// (ParameterOf()) and its value for a value that the field does not take, and InvalidArgument with
// line and column if the body is not JSON. Ranges that the core checks are not checked here, as
// long as the value fits into the field of SamplingParams. Any thread; it may take long for a long
// body.
absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body,
                                                         const CompletionSettings& settings);

}  // namespace baton
