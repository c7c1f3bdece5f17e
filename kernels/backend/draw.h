#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace baton {

class TokenHistory;  // common/sampling/token_history.h

// Different tokens of a sequence under penalties, at most.
constexpr int kMostHistoryTokens = 1024;

// How a backend that draws takes a token from one row's logits: what of the rules in
// common/sampling/sampler.h it knows, under the same names and in the same order. Tokens are those
// that the sampler there draws from the same logits. A row that asks for more (bad words of several
// tokens) is not drawn by a backend.
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
  absl::Span<const std::pair<TokenId, float>> logit_bias;  // added; ascending, 1024 at most
  absl::Span<const TokenId> banned;       // can't be drawn; 256 at most, 512 without stop_tokens
  absl::Span<const TokenId> stop_tokens;  // nor these, 256 at most, while generated < min_tokens
  int min_tokens = 0;
  int generated = 0;      // of the answer, before this token
  int alternatives = -1;  // logprobs wanted; -1: not even its own

  // Penalties, of a sequence whose prompt and answer have at most kMostHistoryTokens different
  // tokens. `sequence` names it, and no other one; 0: no penalties. `history` are its tokens as far
  // as the host knows them, read by the call: all of them, but for one that is drawn by the step
  // before, which this row follows.
  uint64_t sequence = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  const TokenHistory* history = nullptr;
};

// What was drawn for one row.
struct DrawnToken {
  absl::Status status;  // as Sampler::Sample's; the rest holds where it is OK
  TokenId id = -1;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // most likely first, lower id first among equals
};

}  // namespace baton
