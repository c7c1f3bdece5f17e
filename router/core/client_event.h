#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "baton/v1/token.pb.h"
#include "common/base/types.h"
#include "router/core/phase_micros.h"
#include "router/core/serving_mode.h"
#include "router/core/slo_verdict.h"

// Events that the core sends to a client. The protocols (router/grpc, router/http) turn them into
// their own messages. A client gets AnswerAccepted, PromptLogprobs (if asked for), AnswerDeltas,
// AnswerFinished and AnswerSummary, in this order. With several answers, AnswerAccepted comes once;
// the other events come for each answer in the same order, mixed with those of other answers.
namespace baton {

// The request is in the queue.
struct AnswerAccepted {
  std::string request_id;
  std::string model;
  uint32_t prompt_tokens = 0;  // Those that the tokeniser adds are included.
};

// Tokens of the prompt with their logprobs, each given the tokens before it. The first token has
// none. Several such events together have the tokens in order of position.
struct PromptLogprobs {
  std::vector<v1::Token> tokens;
};

// New tokens of one answer, and the text that became certain with them. Text may come later than
// its tokens (half a character, or text that may still begin a stop string), so an event may have
// only tokens or only text.
struct AnswerDelta {
  uint32_t index = 0;             // Index of the answer, from 0.
  std::string text;               // UTF-8, whole characters.
  std::vector<v1::Token> tokens;  // In order of position.
  // For each token, the number of bytes of `text` that were certain once the token had come. What
  // lies beyond the last number became certain with the end of the answer.
  std::vector<size_t> text_ends;
};

// The answer is complete.
struct AnswerFinished {
  uint32_t index = 0;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;  // STOP or LENGTH.
  std::string matched_stop;           // The stop string that ended the answer, if one did.
  std::optional<TokenId> stop_token;  // The end or stop token that ended it, if one did.
  // The model's own limit if that ended the answer, for people; see v1::Finished.
  std::string limit;
};

struct TokenUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;      // Tokens of the prompt whose KV was found in the prefix cache.
  uint32_t completion_tokens = 0;  // An end token is included.
};

// Comes last for each answer.
struct AnswerSummary {
  uint32_t index = 0;
  TokenUsage usage;  // Tokens of this answer.
  // Tokens of all answers, with the prompt counted once. Set in the last event of a client.
  std::optional<TokenUsage> total;
  uint64_t seed = 0;
  PhaseMicros timing;
  std::string prefill_worker, decode_worker, link;  // See v1::Summary.
  uint32_t decode_cached_tokens = 0;
  uint32_t migrations = 0;
  ServingMode mode = ServingMode::kUnspecified;  // The mode of the last attempt.
  std::optional<SloVerdict> slo;                 // Set if the request has latency targets.
};

using ClientEvent =
    std::variant<AnswerAccepted, PromptLogprobs, AnswerDelta, AnswerFinished, AnswerSummary>;

}  // namespace baton
