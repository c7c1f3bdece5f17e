#pragma once

#include "common/model/source/model_config.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/backend/step_limits.h"

namespace baton {

// The max size of a worker's steps.
struct StepSize {
  // If max_sequences is 0, a step may have as many sequences as rows. If max_context is 0, the
  // model's context is the limit.
  StepSize(int max_rows, int max_sequences = 0, int max_context = 0)
      : rows(max_rows), sequences(max_sequences), context(max_context) {}

  // Max rows whose logits are in memory at once while a prompt is scored. For a vocabulary of 128k
  // tokens, 16 rows are 8 MiB.
  static constexpr int kScoredAtOnce = 16;

  // Converts the sizes to the limits for which a backend reserves memory.
  StepLimits LimitsFor(const ModelConfig& config, const KvLayout& layout) const;

  int rows;       // max tokens in one step, all sequences together
  int sequences;  // max sequences in one step; a token may be sampled for each
  int context;    // max tokens of a sequence
};

}  // namespace baton
