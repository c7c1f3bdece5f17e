#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/sampling/philox.h"
#include "common/sampling/sampling_options.h"

namespace baton {

// For tests. Returns the token sampled at `position` if every distribution close to `logprobs`
// gives the same token, otherwise nullopt. Computes in doubles from `logprobs` alone, without
// Sampler. Two conditions must hold:
// - The token stays the same if the random number or top_p changes by up to `epsilon`.
// - If the last token that top_p keeps is likelier than `epsilon`, the next token's probability is
//   smaller by at least `epsilon`.
//
//   logprobs  [vocab], by id, at temperature 1
//   options   temperature above 0, top_p, seed and answer_index; nothing else is set
inline std::optional<TokenId> ClearSample(absl::Span<const float> logprobs,
                                          const SamplingOptions& options, int position,
                                          double epsilon) {
  const size_t vocab = logprobs.size();
  const double largest = *std::max_element(logprobs.begin(), logprobs.end());
  std::vector<double> chance(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    chance[i] = std::exp((logprobs[i] - largest) / options.temperature);
  }
  const double sum = std::accumulate(chance.begin(), chance.end(), 0.0);
  for (double& one : chance) one /= sum;
  std::vector<TokenId> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  if (options.top_p < 1) {
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return chance[a] > chance[b]; });
  }

  const double uniform = UniformAt(options.seed, position, options.answer_index);
  const auto sampled = [&](const std::vector<bool>& kept, double mass, double at) {
    double left = std::clamp(at, 0.0, 1.0) * mass;
    TokenId last = -1;
    for (size_t i = 0; i < vocab; ++i) {
      if (!kept[i]) continue;
      last = static_cast<TokenId>(i);
      if (left < chance[i]) break;
      left -= chance[i];
    }
    return last;
  };
  // Tries every set of tokens that top_p may keep: the first of `order`, the first two, and so on.
  std::vector<bool> kept(vocab);
  std::optional<TokenId> token;
  double mass = 0;
  for (size_t i = 0; i < vocab; ++i) {
    kept[order[i]] = true;
    mass += chance[order[i]];
    const bool all = i + 1 == vocab;
    if (!all && (options.top_p >= 1 || mass < options.top_p - epsilon)) continue;
    const double cut = chance[order[i]];
    if (!all && cut > epsilon && cut - chance[order[i + 1]] < epsilon) return std::nullopt;
    for (const double at : {uniform - epsilon, uniform + epsilon}) {
      const TokenId here = sampled(kept, mass, at);
      if (token.value_or(here) != here) return std::nullopt;
      token = here;
    }
    if (mass >= options.top_p + epsilon) break;
  }
  return token;
}

}  // namespace baton
