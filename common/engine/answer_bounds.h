#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/engine/clear_draw.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"

namespace baton {

// For tests: how near a model's answers on a device are to the CPU's, which computes in float where
// the device has weights, activations and KV in bf16.
struct AnswerBounds {
  // Nats. Logprobs may be apart by half of this: so where the best two of the CPU are further
  // apart, both choose the same token.
  double gap;
  // Seeded draws: at this temperature, sums of the two distributions over the first tokens by id
  // may be apart by `epsilon`. Where a random number is further from all such sums of the CPU, both
  // draw the same token (ClearDraw).
  float temperature;
  double epsilon;
};

// `model`: the name of its folder. Logits of the demo model, which is trained, are larger than
// those of random weights, which have likely tokens at low temperatures alone.
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

// Returns the token that a device has to choose where the CPU has these logprobs, if its numbers
// are as near to the CPU's as `bounds` says; nullopt if several tokens are possible.
//   cpu       its logprobs, most likely first: all of them, or of a greedy choice the best two
//   sampling  temperature, and above 0 top_p, seed and answer_index; it has nothing else
inline std::optional<TokenId> ClearChoice(absl::Span<const TokenLogprob> cpu, int position,
                                          const SamplingOptions& sampling,
                                          const AnswerBounds& bounds) {
  if (sampling.temperature == 0) {
    if (cpu[0].logprob - cpu[1].logprob < bounds.gap) return std::nullopt;
    return cpu[0].id;
  }
  std::vector<float> logprobs(cpu.size());
  for (const auto& [id, logprob] : cpu) logprobs.at(id) = logprob;
  return ClearDraw(logprobs, sampling, position, bounds.epsilon);
}

}  // namespace baton
