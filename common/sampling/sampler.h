#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"

namespace baton {

// Draws tokens from logits. What it returns depends on its arguments alone, bit for bit: sums run
// in a fixed order in double, exp is our own, and the random number comes from Philox under (seed,
// position). Holds scratch memory only; one thread.
//
// Order, as in transformers and vLLM: stop tokens out while fewer than `min_tokens` have been
// generated, temperature, top_k, top_p, min_p, draw.
//   temperature 0  the largest logit, lowest id among equals; the other options change nothing
//   top_k          exactly k tokens: by logit, lowest id first among equals
//   top_p          the shortest run in that order whose probability, among what top_k left, is at
//                  least top_p; never empty
//   min_p          what is at least min_p times as likely as the best
// Logprobs are the log-softmax of the logits as given: before mask, temperature and truncation.
class Sampler {
 public:
  // The token at absolute position `position`, of which `generated` came before it in the answer.
  //   logits  [vocab]  not empty; -infinity is a token that can't be drawn
  // Internal for NaN or +infinity among the logits, and when nothing is left to draw from.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits,
                                      const SamplingOptions& options, int position, int generated);

 private:
  struct Candidate {
    float logit;
    TokenId id;
    // By logit, lowest id first among equals: strict and total.
    bool operator<(const Candidate& other) const {
      return logit != other.logit ? logit > other.logit : id < other.id;
    }
  };
  TokenId Draw(absl::Span<const float> logits, float largest, const SamplingOptions& options,
               int position);

  std::vector<float> masked_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace baton
