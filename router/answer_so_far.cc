#include "router/answer_so_far.h"

#include <algorithm>
#include <utility>

namespace baton {

AnswerSoFar::AnswerSoFar(size_t prompt_tokens, const SamplingOptions& sampling,
                         std::vector<std::string> stop, std::optional<TextDecoder> decoder,
                         int vocab)
    : prompt_tokens_(prompt_tokens),
      stop_tokens_(sampling.stop_tokens),
      decoder_(std::move(decoder)),
      vocab_(vocab),
      matcher_(std::move(stop)) {}

AnswerSoFar::Took AnswerSoFar::Take(v1::Token token) {
  const size_t position = token.position();
  if (token.token_id() < 0 || token.token_id() >= vocab_ || position < prompt_tokens_ ||
      position > next_position()) {
    return Took::kInvalid;
  }
  if (position < next_position()) {
    return tokens_[position - prompt_tokens_] == token.token_id() ? Took::kKnown : Took::kDiverged;
  }
  const TokenId id = token.token_id();
  tokens_.push_back(id);
  *pending_.add_tokens() = std::move(token);
  // The text of a token that ends the answer is no part of it.
  const bool ends = std::find(stop_tokens_.begin(), stop_tokens_.end(), id) != stop_tokens_.end();
  if (decoder_ && !ends) AddText(decoder_->next(id));
  return stopped_ ? Took::kStopped : Took::kNew;
}

void AnswerSoFar::AddText(absl::string_view text) {
  if (!stopped_) stopped_ = matcher_.Feed(text, pending_.mutable_text());
}

std::optional<AnswerEnd> AnswerSoFar::Complete(int max_tokens) const {
  if (tokens_.empty()) return std::nullopt;
  if (stopped_) return AnswerEnd{v1::FINISH_REASON_STOP, std::nullopt, matcher_.matched()};
  const TokenId last = tokens_.back();
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), last) != stop_tokens_.end()) {
    return AnswerEnd{v1::FINISH_REASON_STOP, last, ""};
  }
  if (static_cast<int>(tokens_.size()) >= max_tokens) {
    return AnswerEnd{v1::FINISH_REASON_LENGTH, std::nullopt, ""};
  }
  return std::nullopt;
}

void AnswerSoFar::Close() {
  if (stopped_) return;
  if (decoder_) AddText(decoder_->flush());
  if (!stopped_) pending_.mutable_text()->append(matcher_.Flush());
}

v1::Delta AnswerSoFar::TakePending() { return std::exchange(pending_, v1::Delta()); }

}  // namespace baton
