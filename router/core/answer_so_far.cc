#include "router/core/answer_so_far.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

std::string Describe(const AnswerEnd& end) {
  if (end.reason == v1::FINISH_REASON_LENGTH) return "LENGTH";
  if (end.reason == v1::FINISH_REASON_STOP) {
    return end.stop_token ? absl::StrCat("STOP by token ", *end.stop_token)
                          : std::string("STOP without a stop token");
  }
  if (end.reason == v1::FINISH_REASON_UNSPECIFIED) return "no end";
  return absl::StrCat("reason ", static_cast<int>(end.reason));
}

}  // namespace

AnswerSoFar::AnswerSoFar(size_t prompt_tokens, const SamplingOptions& sampling,
                         std::vector<std::string> stop, std::optional<TextDecoder> decoder,
                         int vocab)
    : prompt_tokens_(prompt_tokens),
      min_tokens_(static_cast<size_t>(std::max(0, sampling.min_tokens))),
      stop_tokens_(sampling.stop_tokens),
      decoder_(std::move(decoder)),
      vocab_(vocab),
      matcher_(std::move(stop)) {}

bool AnswerSoFar::IsStop(TokenId id) const {
  return std::find(stop_tokens_.begin(), stop_tokens_.end(), id) != stop_tokens_.end();
}

AnswerSoFar::Took AnswerSoFar::Take(v1::Token token, int max_tokens) {
  const size_t position = token.position();
  if (token.token_id() < 0 || token.token_id() >= vocab_ || position < prompt_tokens_ ||
      position > next_position()) {
    return Took::kInvalid;
  }
  if (position < next_position()) {
    return tokens_[position - prompt_tokens_] == token.token_id() ? Took::kKnown : Took::kDiverged;
  }
  const TokenId id = token.token_id();
  const bool ends = IsStop(id);
  if (Complete(max_tokens)) return Took::kPastEnd;
  if (ends && tokens_.size() < min_tokens_) return Took::kTooEarly;
  tokens_.push_back(id);
  pending_.tokens.push_back(std::move(token));
  // A token that ends the answer is not turned into text.
  if (decoder_ && !ends) AddText(decoder_->next(id));
  pending_.text_ends.push_back(pending_.text.size());
  return stopped_ ? Took::kStopped : Took::kNew;
}

void AnswerSoFar::AddText(absl::string_view text) {
  // As in vLLM, the text of the first min_tokens tokens can't end the answer.
  const bool may_match = tokens_.size() > min_tokens_;
  if (!stopped_) stopped_ = matcher_.Feed(text, &pending_.text, may_match);
}

std::optional<AnswerEnd> AnswerSoFar::EndAfter(TokenId last, size_t tokens, int max_tokens) const {
  if (IsStop(last)) return AnswerEnd{v1::FINISH_REASON_STOP, last, ""};
  if (static_cast<int>(tokens) >= max_tokens) {
    return AnswerEnd{v1::FINISH_REASON_LENGTH, std::nullopt, ""};
  }
  return std::nullopt;
}

std::optional<AnswerEnd> AnswerSoFar::Complete(int max_tokens) const {
  if (tokens_.empty()) return std::nullopt;
  if (stopped_) return AnswerEnd{v1::FINISH_REASON_STOP, std::nullopt, matcher_.matched()};
  return EndAfter(tokens_.back(), tokens_.size(), max_tokens);
}

absl::Status AnswerSoFar::CheckEnd(const AnswerEnd& said, TokenId last, size_t tokens,
                                   int max_tokens) const {
  const AnswerEnd implied = EndAfter(last, tokens, max_tokens).value_or(AnswerEnd());
  if (said.reason == implied.reason && said.stop_token == implied.stop_token) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "the worker ended the answer with ", Describe(said), " after ", tokens, " of ", max_tokens,
      " tokens, the last of which is ", last, "; expected ", Describe(implied)));
}

void AnswerSoFar::Close() {
  if (stopped_) return;
  if (decoder_) AddText(decoder_->flush());
  if (!stopped_) pending_.text.append(matcher_.Flush());
}

AnswerDelta AnswerSoFar::TakePending() { return std::exchange(pending_, AnswerDelta()); }

}  // namespace baton
