#pragma once

#include "common/model/model_config.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/backend/step_limits.h"

namespace baton {

// The most that a worker puts into one step.
struct StepSize {
  // 0: as many sequences as rows; a context as long as the model's.
  StepSize(int most_rows, int most_sequences = 0, int most_context = 0)
      : rows(most_rows), sequences(most_sequences), context(most_context) {}

  // Rows whose logits are in memory at once while a prompt is scored: 16 of 128k are 8 MiB.
  static constexpr int kScoredAtOnce = 16;

  // What that asks of a backend.
  StepLimits LimitsFor(const ModelConfig& config, const KvLayout& layout) const;

  int rows;       // tokens over all sequences
  int sequences;  // each may want a token
  int context;    // tokens of a sequence
};

}  // namespace baton
