#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "router/core/core_events.h"
#include "router/core/router_core.h"
#include "router/core/stop_matcher.h"

namespace baton {

// Why an answer is over.
struct AnswerEnd {
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<TokenId> stop_token;
  std::string matched_stop;
};

// The tokens of one answer as they were shown, the text that became certain, and what of both the
// client has not been sent yet. A token once taken never changes.
class AnswerSoFar {
 public:
  // `sampling.max_tokens` may be set later, before the first token.
  AnswerSoFar(size_t prompt_tokens, const SamplingOptions& sampling, std::vector<std::string> stop,
              std::optional<TextDecoder> decoder, int vocab);

  enum class Took {
    kNew,
    kKnown,     // the same token again
    kDiverged,  // another token stands at this position
    kInvalid,   // leaves a gap, lies in the prompt, or is no token of the vocabulary
    kPastEnd,   // the answer was complete before it
    kTooEarly,  // a stop token before `min_tokens` tokens
    kStopped,   // new, and a stop string matched with it: the answer is over
  };
  Took Take(v1::Token token, int max_tokens);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  size_t next_position() const { return prompt_tokens_ + tokens_.size(); }
  // The end that the tokens alone imply: a stop token, or `max_tokens` reached. Nothing if more
  // tokens have to follow.
  std::optional<AnswerEnd> Complete(int max_tokens) const;
  // OK if a worker may say that the answer ends in the way of `said` after `tokens` tokens, the
  // last of which is `last`. UNSPECIFIED says that it goes on. DataLoss otherwise: the message has
  // both ends.
  absl::Status CheckEnd(const AnswerEnd& said, TokenId last, size_t tokens, int max_tokens) const;
  const std::string& matched_stop() const { return matcher_.matched(); }

  // No token will follow: gives out the text that was held back.
  void Close();
  bool has_pending() const { return !pending_.text().empty() || pending_.tokens_size() > 0; }
  size_t pending_tokens() const { return static_cast<size_t>(pending_.tokens_size()); }
  v1::Delta TakePending();

 private:
  void AddText(absl::string_view text);
  bool IsStop(TokenId id) const;
  // The end that `tokens` tokens imply, the last of which is `last`.
  std::optional<AnswerEnd> EndAfter(TokenId last, size_t tokens, int max_tokens) const;

  const size_t prompt_tokens_;
  const size_t min_tokens_;
  const std::vector<TokenId> stop_tokens_;
  const std::optional<TextDecoder> decoder_;
  const int vocab_;
  StopMatcher matcher_;
  bool stopped_ = false;
  std::vector<TokenId> tokens_;
  v1::Delta pending_;
};

}  // namespace baton
