#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// Features that not every server with OpenAI's API has.
struct OpenAiFeatures {
  bool prompt_ids = false;  // Takes prompts of token ids.
  bool answer_ids = false;  // Takes `return_token_ids`, and then gives the ids of the tokens.
};

// Number of different words of which prompts consist if the server takes no token ids.
inline constexpr int32_t kOpenAiWords = 256;

// Returns the JSON body of a request to /v1/completions, or to /v1/chat/completions, that asks for
// the same answer as `request` does at a router, as a stream of events with the usage at its end.
// If the server takes no token ids, id i of the prompt becomes the word i % kOpenAiWords, which is
// one token or a few. Asks for the ids of the answer if `answer_ids` is set.
std::string CompletionBody(const v1::GenerateRequest& request, absl::string_view model,
                           const OpenAiFeatures& features, bool answer_ids, bool chat);

}  // namespace baton
