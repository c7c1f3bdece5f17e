#pragma once

#include "common/model/model_config.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/backend/step_limits.h"

namespace baton {

// The max size of a worker's steps.
struct StepSize {
  // 0 sequences: as many as rows. 0 context: the model's context.
  StepSize(int max_rows, int max_sequences = 0, int max_context = 0)
      : rows(max_rows), sequences(max_sequences), context(max_context) {}

  // Max rows whose logits are in memory at once while a prompt is scored. For a vocabulary of 128k
  // tokens, 16 rows are 8 MiB.
  static constexpr int kScoredAtOnce = 16;

  // Returns these sizes as limits for a backend.
  StepLimits LimitsFor(const ModelConfig& config, const KvLayout& layout) const;

  int rows;       // tokens of all sequences together
  int sequences;  // sequences in one step; each may want a token
  int context;    // max tokens of a sequence
};

}  // namespace baton
