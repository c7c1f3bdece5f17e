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

// For tests: the token that is drawn at `position`, where every distribution near this one gives
// the same; nullopt where it may not. Decided of this distribution alone, in plain doubles and
// without Sampler: `epsilon` more or less of the random number, or of top_p, must make no
// difference, nor may two tokens of more than `epsilon` be nearly alike where top_p cuts between
// them.
//   logprobs  [vocab]  by id, at temperature 1
//   options   their temperature above 0, top_p, seed and answer_index; they have nothing else
inline std::optional<TokenId> ClearDraw(absl::Span<const float> logprobs,
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
  const auto drawn = [&](const std::vector<bool>& kept, double mass, double at) {
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
  // Every cut that there may be: after the first of `order`, the first two, ...
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
      const TokenId here = drawn(kept, mass, at);
      if (token.value_or(here) != here) return std::nullopt;
      token = here;
    }
    if (mass >= options.top_p + epsilon) break;
  }
  return token;
}

}  // namespace baton
