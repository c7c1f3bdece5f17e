#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/cuda/kernels/kernels.h"
#include "tests/bench/device_bench.h"

namespace baton {

// Attention of one step, ready to be launched: sequences that have `context` positions each, of
// which the last `rows` are the step's, in a pool of one layer whose blocks are dealt out at
// random. q, K and V are random bf16 numbers. All memory is the bench's.
class PagedStep {
 public:
  struct Shape {
    int heads = 0;
    int batch = 0, context = 0, rows = 0;
  };
  PagedStep(DeviceBench& bench, const KvLayout& layout, const Shape& shape);

  // All of it lives as long as this.
  const PagedAttentionParams& params() const { return params_; }
  absl::Span<const SequenceRows> sequences() const { return sequences_; }
  // Bytes of K and V that the sequences have.
  double KvBytes() const;
  // Multiplications and additions: each row sees the positions up to its own.
  double Flops() const;

 private:
  const KvLayout layout_;
  const Shape shape_;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<SequenceRows> sequences_;
  PagedAttentionParams params_ = {};
};

// One layer of an 8B Llama's KV, or of a small one.
KvLayout AttentionLayout(bool tiny, int block_tokens);
// Query heads of the same model.
int AttentionHeads(bool tiny);

}  // namespace baton
