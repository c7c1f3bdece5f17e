#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/engine/clear_sample.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"

namespace baton {

// For tests. Bounds on how far a model's results on a device may differ from the CPU's. The CPU
// computes in float, while the device keeps weights, activations and KV in bf16.
struct AnswerBounds {
  // In nats. The logprobs of a token on device and CPU may differ by half of `gap`. So if the CPU's
  // two most likely tokens are further apart than `gap`, both must choose the same token.
  double gap;
  // Bounds for seeded sampling at this temperature. The sampler adds up the token probabilities in
  // order of token id, and takes the token at which the sum exceeds a random number. Each such sum
  // on the device may differ from the CPU's by `epsilon`. If the random number is further than
  // `epsilon` from every sum of the CPU, device and CPU sample the same token (ClearSample).
  float temperature;
  double epsilon;
};

// Returns the bounds for the model in the folder named `model`. The demo model is trained. The
// other models have random weights, so their logits are smaller and their distributions nearly
// flat. Only at a low temperature does such a model have likely tokens.
inline AnswerBounds AnswerBoundsOf(absl::string_view model) {
  if (model == "demo") return {0.3, 1.5f, 0.02};
  constexpr std::pair<absl::string_view, double> kOthers[] = {{"llama3_sharded_bf16", 0.08},
                                                              {"mistral_dynamic_f16", 0.1},
                                                              {"phi3_long_bf16", 0.1},
                                                              {"qwen2_yarn_tied_bf16", 0.04}};
  for (const auto& [name, epsilon] : kOthers) {
    if (name == model) return {0.2, 0.3f, epsilon};
  }
  return {0.2, 0.3f, 0.06};
}

// Returns the token that a device must choose, given the CPU's logprobs, if the device's logprobs
// are within `bounds` of them. Returns nullopt if several tokens are possible.
//   cpu       logprobs, most likely first: all of them, or only the best two for a greedy choice
//   sampling  temperature; if above 0, also top_p, seed and answer_index; nothing else is set
inline std::optional<TokenId> ClearChoice(absl::Span<const TokenLogprob> cpu, int position,
                                          const SamplingOptions& sampling,
                                          const AnswerBounds& bounds) {
  if (sampling.temperature == 0) {
    if (cpu[0].logprob - cpu[1].logprob < bounds.gap) return std::nullopt;
    return cpu[0].id;
  }
  std::vector<float> logprobs(cpu.size());
  for (const auto& [id, logprob] : cpu) logprobs.at(id) = logprob;
  return ClearSample(logprobs, sampling, position, bounds.epsilon);
}

}  // namespace baton
