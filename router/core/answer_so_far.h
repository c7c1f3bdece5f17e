#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/token.pb.h"
#include "router/core/client_event.h"
#include "router/core/core_events.h"
#include "router/core/stop_matcher.h"
#include "router/core/text_decoder.h"

namespace baton {

// Reason for which an answer ended.
struct AnswerEnd {
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<TokenId> stop_token;
  std::string matched_stop;
};

// Holds the tokens of one answer, the part of its text that no further token can change, and the
// part of both that has not been sent to the client yet. A token that was taken never changes. Part
// of a Request; core's loop thread only.
class AnswerSoFar {
 public:
  // Does not read `sampling.max_tokens`, because it may be decided later. The functions that need
  // the limit get it as an argument.
  AnswerSoFar(size_t prompt_tokens, const SamplingOptions& sampling, std::vector<std::string> stop,
              std::optional<TextDecoder> decoder, int vocab);

  // Result of Take(). Only kNew and kStopped change the answer.
  enum class Took {
    kNew,
    kKnown,     // The same token was taken at this position before.
    kDiverged,  // Another token was taken at this position before.
    kInvalid,   // The token leaves a gap, lies in the prompt, or is not in the vocabulary.
    kPastEnd,   // The answer was complete before this token.
    kTooEarly,  // A stop token that comes before `min_tokens` tokens.
    kStopped,   // The token is new and completes a stop string: the answer is over.
  };
  // Takes a token from a worker, at the position that the token names.
  Took Take(v1::Token token, int max_tokens);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  // Position of the next new token, counted from the start of the prompt.
  size_t next_position() const { return prompt_tokens_ + tokens_.size(); }
  // Returns the end of the answer if its tokens show that it is over: by a stop string, a stop
  // token, or `max_tokens`. Returns nothing if more tokens have to follow.
  std::optional<AnswerEnd> Complete(int max_tokens) const;
  // Checks a worker's claim about the end of the answer. `said` is the end that the worker reports
  // after `tokens` tokens, the last of which is `last`; reason UNSPECIFIED means that the answer
  // goes on. Returns DataLoss with both ends if the tokens imply another end.
  absl::Status CheckEnd(const AnswerEnd& said, TokenId last, size_t tokens, int max_tokens) const;
  // Stop string that ended the answer; empty if none has.
  const std::string& matched_stop() const { return matcher_.matched(); }

  // Ends the text: the part that was held back becomes pending, because no token follows.
  void Close();
  // True if some text or tokens are certain but were not sent to the client.
  bool has_pending() const { return !pending_.text.empty() || !pending_.tokens.empty(); }
  size_t pending_tokens() const { return pending_.tokens.size(); }
  // Returns the tokens and the text that are pending, and clears them. The caller has to send them.
  AnswerDelta TakePending();

 private:
  void AddText(absl::string_view text);
  bool IsStop(TokenId id) const;
  // Returns the end of an answer of `tokens` tokens, the last of which is `last`: by a stop token
  // or by `max_tokens`. Returns nothing if the answer goes on. Ignores stop strings.
  std::optional<AnswerEnd> EndAfter(TokenId last, size_t tokens, int max_tokens) const;

  const size_t prompt_tokens_;
  const size_t min_tokens_;
  const std::vector<TokenId> stop_tokens_;
  const std::optional<TextDecoder> decoder_;
  const int vocab_;
  StopMatcher matcher_;
  bool stopped_ = false;
  std::vector<TokenId> tokens_;
  AnswerDelta pending_;
};

}  // namespace baton
