#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace baton {

// The tokens of a sequence so far, in the form that penalties and banned words need: which tokens,
// how often each was generated, and the last ones. Updated token by token, so that no step has to
// count all tokens again. One thread.
class TokenHistory {
 public:
  struct Count {
    TokenId id = 0;
    int times = 0;
  };

  // `tokens` are the original prompt and all tokens generated since. So a restarted sequence has
  // the same counts as one that never stopped.
  TokenHistory(absl::Span<const TokenId> tokens, int original_prompt_tokens);

  // Adds a generated token.
  void Append(TokenId id);

  // Returns every token of prompt and answer, once.
  absl::Span<const TokenId> distinct() const { return distinct_; }
  // Returns every token of the answer once, with its count.
  absl::Span<const Count> generated() const { return generated_; }
  // Returns true if the sequence ends in `tokens`. These may be at most
  // SamplingOptions::kMaxBadWordTokens tokens.
  bool EndsWith(absl::Span<const TokenId> tokens) const;

 private:
  absl::flat_hash_map<TokenId, int> seen_;  // index into generated_; -1: only in the prompt
  std::vector<TokenId> distinct_;
  std::vector<Count> generated_;
  std::vector<TokenId> last_;
};

}  // namespace baton
