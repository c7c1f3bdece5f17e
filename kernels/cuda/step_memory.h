#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend/step_limits.h"

namespace baton {

// Partial results of attention that are in memory at once; what needs more is done in parts.
constexpr size_t kMostAttentionPartialBytes = size_t{64} << 20;

// Windows of a model's layers whose plans of recorded steps are kept apart; with more, some are
// made anew for each layer.
constexpr size_t kMostFixedPlans = 8;

// Device memory, in bytes, that the largest steps need beside activations: what a CUDA backend's
// Reserve takes, and what is counted on before there is one. 0: nothing is allocated.
struct StepMemory {
  // `shared_bytes`: of a block on that device, which decides who computes attention.
  static StepMemory For(const StepLimits& limits, size_t shared_bytes,
                        size_t most_partial_bytes = kMostAttentionPartialBytes);

  struct FixedPlan {  // of steps that are recorded, for each window
    int window = 0;
    size_t bytes = 0;
  };

  size_t step = 0;        // what is uploaded with it
  size_t logit_rows = 0;  // and after it
  size_t rope_table = 0;
  size_t attention_plan = 0, attention_partials = 0;
  std::vector<FixedPlan> fixed_plans;
  size_t gathered = 0, logits = 0;
  int draw_rows = 0;  // of `vocab` logits, of steps from some of which tokens are drawn
  int vocab = 0;

  // Allocations, by what they are for.
  std::vector<size_t> Uploads() const { return {step, logit_rows, rope_table}; }
  std::vector<size_t> Attention() const;
  std::vector<size_t> Logits() const { return {gathered, logits}; }
  std::vector<size_t> Draws() const;
};

// Of an activation tensor, whose rows begin at multiples of 16 bytes.
size_t ActivationBytes(int rows, int cols);

}  // namespace baton
