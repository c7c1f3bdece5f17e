#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace baton {

class TokenHistory;  // defined in common/sampling/token_history.h

// Max number of different tokens in a sequence with penalties.
constexpr int kMaxHistoryTokens = 1024;

// Options for a backend that samples a token from one row's logits. They are a subset of the
// sampling options in common/sampling/sampler.h, with the same names and applied in the same order.
// From the same logits, the backend samples the same token as Sampler in that file. Rows that need
// other options (banned words of several tokens) can't be sampled by a backend.
struct SampleOptions {
  float temperature = 0;  // 0: samples the largest logit; among equal ones, the lowest id
  float top_p = 1;
  int top_k = 0;  // 0: keeps all tokens
  float min_p = 0;
  // Seed, answer index and position together select the random number (Philox).
  uint64_t seed = 0;
  uint32_t answer_index = 0;
  int position = 0;  // absolute position of the token to sample
  // Changes to the logits, made before temperature, top_k, top_p and min_p apply. All ids are in
  // the vocabulary.
  absl::Span<const std::pair<TokenId, float>> logit_bias;  // ascending ids, added values; max 1024
  absl::Span<const TokenId> banned;  // never sampled; at most 256, or 512 if stop_tokens is empty
  absl::Span<const TokenId> stop_tokens;  // not sampled while generated < min_tokens; at most 256
  int min_tokens = 0;
  int generated = 0;      // tokens generated for the answer before this one
  int alternatives = -1;  // number of alternatives with logprobs; -1: no logprobs at all

  // Penalties. They are allowed only for a sequence with at most kMaxHistoryTokens different tokens
  // in prompt and answer. `sequence` is an id that no other sequence has; 0 means no penalties.
  // `history` holds the sequence's tokens as far as the host knows them, and is read during the
  // call of StartStep. It may lack one token: the one that the previous step samples, if this row
  // follows it (StepArgs::follows).
  uint64_t sequence = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  const TokenHistory* history = nullptr;
};

// The token sampled for one row.
struct BackendSample {
  absl::Status status;  // same errors as Sampler::Sample; the other fields are valid only if OK
  TokenId id = -1;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // most likely first; lower id first among equals
};

}  // namespace baton
