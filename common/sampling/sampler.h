#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/logit_blocks.h"
#include "common/sampling/philox.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"

namespace baton {

// In the functions below, a weight is an integer in units of 1 / kWholeWeight.
//
// Returns the smallest weight that min_p keeps, at least 1.
uint64_t MinWeight(float min_p);
// Returns the total weight that the tokens kept by top_p must reach, if the weights of all tokens
// add up to `sum`. The result is between 1 and `sum`.
uint64_t MassOf(float top_p, uint64_t sum);
// Maps `uniform`, a random integer of kUniformBits bits, to an integer in [0, sum).
inline uint64_t SampledUnit(uint64_t uniform, uint64_t sum) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(uniform) * sum >> kUniformBits);
}
// Returns the natural logarithm of the sum of e^logit over all tokens. `largest` is the largest
// logit. `sum` is the sum of the tokens' weights at temperature 1. A weight is e^(logit - largest)
// as an integer (TokenWeight).
double LogOfSum(float largest, uint64_t sum);

// Errors about the logits of a position.
absl::Status UnsoundLogits(int position);        // Internal: NaN or +infinity
absl::Status NoLogits(int position);             // Internal: all -infinity
absl::Status NoTokenLeftToSample(int position);  // InvalidArgument: the options forbid all tokens

// Samples tokens from logits. The result depends only on the arguments, bit for bit, on every
// machine: weights are integers (logit_blocks.h), so their sum is exact in any order, and the
// random number comes from Philox under (seed, answer index, position). Weights are rounded to
// 2^-39 of the best token's weight, so a token less than half as likely as that is never sampled.
// Holds only scratch memory. One thread.
//
// These options change the logits first, in this order, as in vLLM and transformers:
//   logit_bias          adds the bias
//   repetition_penalty  tokens of prompt and answer: divides a logit above 0 by the penalty, and
//                       multiplies any other logit by it
//   frequency_penalty   tokens of the answer: subtracts the penalty times their count
//   presence_penalty    tokens of the answer: subtracts the penalty once
//   bad_words           bans the last token of a word after its other tokens. As in transformers,
//                       a word may begin in the prompt; vLLM looks only at the answer. Unlike in
//                       transformers, a word of L tokens is also banned if exactly L - 1 tokens
//                       come before its end, prompt included. An end token that is a bad word by
//                       itself is banned too
//   min_tokens          bans stop tokens while the answer has fewer tokens than this
// Then these options choose among the tokens that are left:
//   temperature         0: the largest logit, lowest id among equals; the rest is ignored
//   top_k               exactly k tokens: by logit, lowest id first among equals
//   top_p               the fewest tokens, in the order of top_k, whose probabilities among the
//                       tokens left by top_k add up to at least top_p; never empty
//   min_p               tokens at least min_p times as likely as the best one. As in transformers,
//                       min_p comes last. vLLM applies it before top_k, so in vLLM top_p chooses
//                       among fewer tokens
//   sampling            by inverse distribution over the tokens left, in order of their ids
// Logprobs are the log-softmax of the original logits, before all these changes.
class Sampler {
 public:
  Sampler() : Sampler(BestLogitKernels()) {}
  explicit Sampler(const LogitKernels& kernels) : kernels_(kernels) {}

  // Samples the token at absolute position `position`. `generated` tokens of its answer come before
  // it.
  //   logits   [vocab]  not empty; -infinity bans a token. Changed during the call, and restored
  //                     before it returns
  //   history  tokens before this one; required if options.LooksBack(), otherwise may be null
  // Returns Internal if a logit is NaN or +infinity or if all are -infinity. Returns
  // InvalidArgument if the options leave no token to sample.
  absl::StatusOr<SampledToken> Sample(absl::Span<float> logits, const SamplingOptions& options,
                                      int position, int generated,
                                      const TokenHistory* history = nullptr);

  // Returns the logprob of the given token `id`, and those of the `alternatives` most likely
  // tokens. Returns Internal if a logit is NaN or +infinity or if all are -infinity.
  absl::StatusOr<SampledToken> Score(absl::Span<const float> logits, TokenId id, int position,
                                     int alternatives);

 private:
  struct Candidate {
    uint64_t weight;
    float logit;
    TokenId id;
    // Orders candidates from best to worst: by logit, lowest id first among equals. The order is
    // strict and total.
    bool operator<(const Candidate& other) const {
      return logit != other.logit ? logit > other.logit : id < other.id;
    }
  };
  struct Best {
    TokenId id = -1;
    float logit = 0;
  };

  absl::Status ScanAsGiven(absl::Span<const float> logits, int position, Best* best);
  absl::Status Scan(absl::Span<const float> logits, int position, Best* best);
  double AddAlternatives(absl::Span<const float> logits, float largest, size_t count,
                         SampledToken* token);
  void Edit(absl::Span<float> logits, const SamplingOptions& options, int generated,
            const TokenHistory* history);
  void Restore(absl::Span<float> logits);
  void FindTop(absl::Span<const float> logits, size_t count);
  TokenId Sample(absl::Span<const float> logits, float largest, const SamplingOptions& options,
                 int position);
  TokenId SampleFromAll(absl::Span<const float> logits, float largest, double scale,
                        uint64_t uniform);
  void CollectAbove(absl::Span<const float> logits, float largest, double scale, uint64_t lowest);
  Candidate CutAtMass(uint64_t mass);
  TokenId SampleFromCandidates(const Candidate& last, uint64_t min_weight, uint64_t uniform);

  const LogitKernels& kernels_;
  std::vector<float> maxima_;   // largest logit of each block
  std::vector<uint64_t> sums_;  // sum of the weights of each block
  std::vector<std::pair<TokenId, float>> edits_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> ordered_;
  std::vector<float> thresholds_;
};

}  // namespace baton
