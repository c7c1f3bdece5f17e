#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend/step_limits.h"

namespace baton {

// Max bytes of partial results of attention in memory at a time. The rows of a step that needs more
// are computed in several parts, one after another.
constexpr size_t kMaxAttentionPartialBytes = size_t{64} << 20;

// A recorded step (a CUDA graph) keeps a plan, which is a list of attention work, for each
// attention window. This is the max number of windows with a plan of their own. If the model's
// layers have more windows, some plans are made anew for each layer.
constexpr size_t kMaxFixedPlans = 8;

// Device memory, in bytes, that the largest steps need besides activations. A CUDA backend's
// Reserve allocates this memory. It can be computed before a backend exists. 0 means that nothing
// is allocated.
struct StepMemory {
  // `shared_bytes` is the shared memory that a thread block may use on this device. The choice of
  // attention kernels depends on it.
  static StepMemory For(const StepLimits& limits, size_t shared_bytes,
                        size_t max_partial_bytes = kMaxAttentionPartialBytes);

  struct FixedPlan {  // plans of recorded steps, one for each window
    int window = 0;
    size_t bytes = 0;
  };

  size_t step = 0;        // bytes of the upload at the start of a step
  size_t logit_rows = 0;  // bytes of the upload of row numbers for Logits outside of a step
  size_t rope_table = 0;
  size_t attention_plan = 0, attention_partials = 0;
  std::vector<FixedPlan> fixed_plans;
  size_t gathered = 0, logits = 0;
  int sample_rows = 0;  // rows, each of `vocab` logits, that one step may sample from
  int vocab = 0;

  // Each of Uploads, Attention, Logits and Samples returns the bytes of every allocation that the
  // part of a step with this name needs.
  std::vector<size_t> Uploads() const { return {step, logit_rows, rope_table}; }
  std::vector<size_t> Attention() const;
  std::vector<size_t> Logits() const { return {gathered, logits}; }
  std::vector<size_t> Samples() const;
};

// Bytes of an activation tensor. Its rows begin at multiples of 16 bytes.
size_t ActivationBytes(int rows, int cols);

}  // namespace baton
