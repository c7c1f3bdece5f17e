#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/model.h"
#include "common/sampling/sampling_options.h"
#include "common/sampling/token_history.h"

namespace baton {

// The rows of a step's plan, sequence after sequence, and how tokens are drawn from them: what a
// ForwardBatch views. Kept from step to step for its memory.
class PlanRows {
 public:
  // Of no sequences, and to be `sequences` at most.
  void Clear(size_t sequences);

  // Some tokens of a sequence. `blocks` must outlive the batch.
  void Add(absl::Span<const TokenId> tokens, int first_position, absl::Span<const BlockId> blocks,
           int rope_reach);
  // One token of a sequence: what was drawn for `logit_row` of the step before.
  void AddFollowing(int logit_row, int position, absl::Span<const BlockId> blocks, int rope_reach);

  // The logits of the last row that was added go to the host.
  void WantLogits();
  // A token is drawn from them on the device, as Sampler would, for `position`, `generated` of its
  // answer before it. Where the options look back there are `sequence` and `history` (DrawOptions),
  // and bad words have one token each.
  void DrawOnDevice(const SamplingOptions& sampling, int position, int generated, int vocab,
                    uint64_t sequence, const TokenHistory* history);

  int first_row(size_t sequence) const { return sequences_[sequence].first_row; }
  size_t logit_rows() const { return logit_rows_.size(); }
  size_t drawn_on_device() const { return options_.size(); }
  // Good until the next Clear.
  ForwardBatch Batch();

 private:
  using Biases = std::vector<std::pair<TokenId, float>>;

  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> sequences_;
  std::vector<int> follows_, logit_rows_, rope_reach_;
  std::vector<const DrawOptions*> draws_;
  std::vector<DrawOptions> options_;  // of those
  std::vector<Biases> biases_;        // of those
  std::vector<std::vector<TokenId>> banned_, stop_tokens_;
};

}  // namespace baton
