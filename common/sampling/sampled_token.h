#pragma once

#include <optional>
#include <vector>

#include "common/base/types.h"

namespace baton {

// One alternative token and the natural logarithm of its probability.
struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

// One generated token.
struct SampledToken {
  TokenId id = 0;
  int position = 0;               // index in the whole sequence; the prompt's first token has 0
  std::optional<float> logprob;   // set if the request asked for logprobs
  std::vector<TokenLogprob> top;  // most likely first, lower id first among equals
};

}  // namespace baton
