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

// Weights are parts of kWholeWeight.
//
// The least weight that min_p keeps: at least 1.
uint64_t LeastWeight(float min_p);
// What the weights of top_p come to at least, of those that are `sum` together: 1 to sum.
uint64_t MassOf(float top_p, uint64_t sum);
// Which one of `sum` units a draw falls into.
inline uint64_t DrawnUnit(uint64_t uniform, uint64_t sum) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(uniform) * sum >> kUniformBits);
}
// The natural logarithm of the sum of all exponentials, whose weights at temperature 1 are `sum`.
double LogOfSum(float largest, uint64_t sum);

// What is wrong with the logits of a position.
absl::Status UnsoundLogits(int position);      // Internal: NaN or +infinity
absl::Status NoLogits(int position);           // Internal: all -infinity
absl::Status NoTokenLeftToDraw(int position);  // InvalidArgument: all of them, by the options

// Draws tokens from logits. What it returns depends on its arguments alone, bit for bit, on every
// machine: weights are integers (logit_blocks.h), whose sums have no order, and the random number
// comes from Philox under (seed, answer index, position). A weight is rounded to 2^-39 of the best
// token's: what is less than half of that likely is never drawn. Holds scratch memory only; one
// thread.
//
// Order of what changes the logits, as in vLLM and transformers:
//   logit_bias          added
//   repetition_penalty  tokens of prompt and answer: l > 0 ? l / penalty : l * penalty
//   frequency_penalty   tokens of the answer: times how often they stand there, taken off
//   presence_penalty    tokens of the answer: taken off
//   bad_words           can't be drawn. As in transformers, a word may begin in the prompt; vLLM
//                       looks at the answer alone. Unlike there, a word of L tokens is also banned
//                       where exactly L - 1 tokens stand before it, prompt included, and so is an
//                       end token that is a word by itself
//   min_tokens          while fewer have been generated, stop tokens can't be drawn
// then of what may be drawn:
//   temperature         0: the largest logit, lowest id among equals; what follows changes nothing
//   top_k               exactly k tokens: by logit, lowest id first among equals
//   top_p               the shortest run in that order whose probability, among what top_k left, is
//                       at least top_p; never empty
//   min_p               what is at least min_p times as likely as the best. As in transformers it
//                       comes last; vLLM has it before top_k, which gives top_p less to count
//   draw                by inverse distribution over what is left, in order of ids
// Logprobs are the log-softmax of the logits as given, before all of this.
class Sampler {
 public:
  Sampler() : Sampler(BestLogitKernels()) {}
  explicit Sampler(const LogitKernels& kernels) : kernels_(kernels) {}

  // The token at absolute position `position`, of which `generated` came before it in the answer.
  //   logits   [vocab]  not empty; -infinity is a token that can't be drawn. Written to meanwhile,
  //                     and afterwards as they were
  //   history  what came before; must be there if options.LooksBack(), may be null otherwise
  // Internal for NaN or +infinity among the logits and when all are -infinity; InvalidArgument when
  // the options leave no token to draw.
  absl::StatusOr<SampledToken> Sample(absl::Span<float> logits, const SamplingOptions& options,
                                      int position, int generated,
                                      const TokenHistory* history = nullptr);

  // The logprobs of a token that is given, with the `alternatives` most likely ones. Internal for
  // NaN or +infinity among the logits and when all are -infinity.
  absl::StatusOr<SampledToken> Score(absl::Span<const float> logits, TokenId id, int position,
                                     int alternatives);

 private:
  struct Candidate {
    uint64_t weight;
    float logit;
    TokenId id;
    // By logit, lowest id first among equals: strict and total.
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
  TokenId Draw(absl::Span<const float> logits, float largest, const SamplingOptions& options,
               int position);
  TokenId DrawFromAll(absl::Span<const float> logits, float largest, double scale,
                      uint64_t uniform);
  void CollectAbove(absl::Span<const float> logits, float largest, double scale, uint64_t lowest);
  Candidate CutAtMass(uint64_t mass);
  TokenId DrawFromCandidates(const Candidate& last, uint64_t min_weight, uint64_t uniform);

  const LogitKernels& kernels_;
  std::vector<float> maxima_;   // of blocks
  std::vector<uint64_t> sums_;  // of blocks
  std::vector<std::pair<TokenId, float>> edits_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> ordered_;
  std::vector<float> thresholds_;
};

}  // namespace baton
