#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"

namespace baton {

// The rows of a step's plan, sequence after sequence, and how tokens are sampled from them. A
// ForwardBatch refers to this data. The engine uses one object for all steps, so that its memory is
// reused.
class PlanRows {
 public:
  // Removes all sequences. At most `sequences` may be added until the next Clear.
  void Clear(size_t sequences);

  // Adds some tokens of a sequence. `blocks` must outlive the batch.
  void Add(absl::Span<const TokenId> tokens, int first_position, absl::Span<const BlockId> blocks,
           int rope_reach);
  // Adds one row of a sequence. The token of this row is not known yet: it is the token that is
  // sampled for logit row `logit_row` of the previous step.
  void AddFollowing(int logit_row, int position, absl::Span<const BlockId> blocks, int rope_reach);

  // Requests the logits of the last added row in host memory.
  void WantLogits();
  // Requests that the device samples a token from the last added row, as Sampler would. The token
  // has position `position`, and `generated` tokens of its answer come before it. If
  // sampling.LooksBack(), `sequence` and `history` must be given (SampleOptions), and each bad word
  // must be a single token.
  void SampleOnDevice(const SamplingOptions& sampling, int position, int generated, int vocab,
                      uint64_t sequence, const TokenHistory* history);

  int first_row(size_t sequence) const { return sequences_[sequence].first_row; }
  size_t logit_rows() const { return logit_rows_.size(); }
  size_t sampled_on_device() const { return options_.size(); }
  // Returns a view of the rows as the input of a ForwardPass. Valid until the next Clear.
  ForwardBatch Batch();

 private:
  using Biases = std::vector<std::pair<TokenId, float>>;

  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> sequences_;
  std::vector<int> follows_, logit_rows_, rope_reach_;
  std::vector<const SampleOptions*> samples_;
  std::vector<SampleOptions> options_;  // samples_ points to these options
  std::vector<Biases> biases_;          // one list for each element of options_
  std::vector<std::vector<TokenId>> banned_, stop_tokens_;
};

}  // namespace baton
