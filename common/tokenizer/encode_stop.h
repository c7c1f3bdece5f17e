#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {

// Says when the encoding of one text ends early. All stages that may work long on a text ask this
// object, and return its first status that is not OK. Belongs to one call of Tokenizer::Encode.
class EncodeStop {
 public:
  // Lets every text be encoded to its end.
  EncodeStop() = default;
  // For the arguments see EncodeOptions.
  EncodeStop(size_t max_tokens, std::function<absl::Status()> interrupted)
      : max_tokens_(max_tokens), interrupted_(std::move(interrupted)) {}

  // Must be called for the work that a stage does, with the number of bytes or symbols that it has
  // worked on since its last call. After every kWorkBetweenInterrupts, returns the status of
  // `interrupted`, and otherwise OK.
  absl::Status Worked(size_t amount) {
    worked_ += amount;
    return worked_ < kWorkBetweenInterrupts ? absl::OkStatus() : AskInterrupted();
  }

  // Returns OutOfRange if the text may not have this number of tokens.
  absl::Status CheckTokens(size_t tokens) const {
    return tokens <= max_tokens_ ? absl::OkStatus() : TooManyTokens();
  }
  // Returns the number of tokens that a text with `tokens` tokens may still get.
  size_t TokensLeft(size_t tokens) const { return max_tokens_ - std::min(tokens, max_tokens_); }
  absl::Status TooManyTokens() const {
    return absl::OutOfRangeError(
        absl::StrCat("the text has more than ", max_tokens_, " tokens"));
  }

 private:
  static constexpr size_t kWorkBetweenInterrupts = 4096;

  absl::Status AskInterrupted() {
    worked_ = 0;
    return interrupted_ ? interrupted_() : absl::OkStatus();
  }

  const size_t max_tokens_ = std::numeric_limits<size_t>::max();
  const std::function<absl::Status()> interrupted_;
  size_t worked_ = 0;
};

}  // namespace baton
