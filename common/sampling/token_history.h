#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace baton {

// What a sequence holds so far, as penalties and banned words look at it: which tokens, how often
// each was generated, and the last ones. Kept up token by token, so that a step never counts again.
// One thread.
class TokenHistory {
 public:
  struct Count {
    TokenId id = 0;
    int times = 0;
  };

  // `tokens` are the original prompt and what was generated since: a sequence that was restarted
  // counts as one that never was.
  TokenHistory(absl::Span<const TokenId> tokens, int original_prompt_tokens);

  // One more was generated.
  void Append(TokenId id);

  // Every token of prompt and answer, once.
  absl::Span<const TokenId> distinct() const { return distinct_; }
  // Every token of the answer, once.
  absl::Span<const Count> generated() const { return generated_; }
  // Whether prompt and answer end in `tokens`, which are at most
  // SamplingOptions::kMaxBadWordTokens.
  bool EndsWith(absl::Span<const TokenId> tokens) const;

 private:
  absl::flat_hash_map<TokenId, int> seen_;  // place in generated_; -1: in the prompt alone
  std::vector<TokenId> distinct_;
  std::vector<Count> generated_;
  std::vector<TokenId> last_;
};

}  // namespace baton
