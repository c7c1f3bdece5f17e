#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/cuda/kernels/kernels.h"
#include "tests/bench/device_bench.h"

namespace baton {

// Attention of one step, ready to be launched. Each sequence has `context` positions, and the step
// computes the last `rows` of them. The blocks of the pool are assigned at random. q, K and V are
// random bf16 numbers. The DeviceBench owns all memory.
class PagedStep {
 public:
  struct Shape {
    int heads = 0;
    int batch = 0, context = 0, rows = 0;
  };
  PagedStep(DeviceBench& bench, const KvLayout& layout, const Shape& shape);

  // The parameters and the sequences are valid while this object lives.
  const PagedAttentionParams& params() const { return params_; }
  absl::Span<const SequenceRows> sequences() const { return sequences_; }
  // Returns the bytes of K and V of all sequences.
  double KvBytes() const;
  // Returns the number of multiplications and additions. Each row attends to the positions up to
  // its own.
  double Flops() const;

 private:
  const KvLayout layout_;
  const Shape shape_;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<SequenceRows> sequences_;
  PagedAttentionParams params_ = {};
};

// Returns the KV layout of one layer of an 8B Llama, or of a small model.
KvLayout AttentionLayout(bool tiny, int block_tokens);
// Returns the number of query heads of an 8B Llama, or of a small model.
int AttentionHeads(bool tiny);

}  // namespace baton
