#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/sampling/logit_blocks.h"
#include "common/sampling/sampled_token.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"

namespace baton {

// Draws tokens from logits. What it returns depends on its arguments alone, bit for bit, on every
// machine: sums run in a fixed order in double, exp is our own, and the random number comes from
// Philox under (seed, answer index, position). Holds scratch memory only; one thread.
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
    double weight;
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
  TokenId DrawFromAll(absl::Span<const float> logits, float largest, double scale, double u);
  void CollectAbove(absl::Span<const float> logits, float largest, double scale, double lowest);
  Candidate CutAtMass(double mass);
  TokenId DrawFromCandidates(const Candidate& last, double min_weight, double u);

  const LogitKernels& kernels_;
  std::vector<float> maxima_;  // of blocks
  std::vector<double> sums_;   // of blocks
  std::vector<std::pair<TokenId, float>> edits_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> ordered_;
  std::vector<float> thresholds_;
};

}  // namespace baton
