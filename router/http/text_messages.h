#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/chat/chat.h"
#include "common/tokenizer/tokenizer.h"
#include "router/http/completion_request.h"
#include "router/http/ignored_fields.h"

// The JSON of /tokenize, /detokenize and /v1/models, in vLLM's shape. Any thread.
namespace baton {

// A request to /tokenize: a text or a conversation. Special tokens that a text spells become their
// ids, as in vLLM.
struct TokenizeBody {
  std::string model;  // Empty: the model that is served.
  std::variant<std::string, Chat> prompt;
  bool add_special = true;  // For texts.
  bool return_token_strs = false;
  IgnoredFields ignored;
};

// A request to /detokenize. Special tokens are part of the text, as in vLLM.
struct DetokenizeBody {
  std::string model;
  std::vector<TokenId> tokens;
  IgnoredFields ignored;
};

// Read a request. Return InvalidArgument as ParseCompletionRequest() does. The ids are not
// negative, but they may lie beyond the vocabulary.
absl::StatusOr<TokenizeBody> ParseTokenizeBody(absl::string_view body,
                                               const CompletionSettings& settings);
absl::StatusOr<DetokenizeBody> ParseDetokenizeBody(absl::string_view body,
                                                   const CompletionSettings& settings);

// Returns {"count","max_model_len","tokens","token_strs"}. The strings are those of the vocabulary,
// such as "Ġthe"; without `return_token_strs` there is null in their place.
std::string TokenizeAnswer(absl::Span<const TokenId> ids, int64_t context_tokens,
                           bool return_token_strs, const Tokenizer& tokenizer);
// Returns {"prompt"}.
std::string DetokenizeAnswer(absl::string_view text);

// The data of a model in /v1/models.
struct ModelCard {
  std::string name;
  int64_t created = 0;         // Unix time, seconds: when the router began to serve it.
  int64_t context_tokens = 0;  // Longest prompt and answer together.
  int64_t vocab_size = 0;      // Tokens of the vocabulary. vLLM's card does not have it.
};
// Returns the card of one model, for /v1/models/{id}.
std::string ModelCardAnswer(const ModelCard& card);
// Returns the list of all models.
std::string ModelListAnswer(absl::Span<const ModelCard> cards);

}  // namespace baton
