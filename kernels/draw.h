#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace baton {

// How a backend that draws takes a token from one row's logits: what of the rules in
// common/sampling/sampler.h it knows, under the same names and in the same order. Tokens are those
// that the sampler there draws from the same logits. A row that asks for more (penalties, bad
// words) is not drawn by a backend.
struct DrawOptions {
  float temperature = 0;  // 0: the largest logit, lowest id among equals
  float top_p = 1;
  int top_k = 0;  // 0 keeps all
  float min_p = 0;
  // The random number is Philox's under these.
  uint64_t seed = 0;
  uint32_t answer_index = 0;
  int position = 0;  // absolute, of the token that is drawn
  // Before all that; ids in the vocabulary.
  absl::Span<const std::pair<TokenId, float>> logit_bias;  // added
  absl::Span<const TokenId> banned;                        // can't be drawn
  int alternatives = -1;                                   // logprobs wanted; -1: not even its own
};

// What was drawn for one row.
struct DrawnToken {
  TokenId id = -1;  // -1: NaN or +infinity among the logits, or nothing that could be drawn
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // most likely first, lower id first among equals
};

}  // namespace baton
