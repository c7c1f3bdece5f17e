#include "tests/bench/paged_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/cuda/layer_pages.h"

namespace baton {

PagedStep::PagedStep(DeviceBench& bench, const KvLayout& layout, const Shape& shape)
    : layout_(layout), shape_(shape) {
  const int each = layout.BlocksFor(shape.context), rows = shape.batch * shape.rows;
  std::vector<BlockId> all(size_t{1} * shape.batch * each);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(1));
  std::vector<DeviceSequence> on_device;
  std::vector<int32_t> sequence_of_row;
  for (int i = 0; i < shape.batch; ++i) {
    blocks_.emplace_back(all.begin() + i * each, all.begin() + (i + 1) * each);
    on_device.push_back({i * shape.rows, shape.rows, shape.context - shape.rows, i * each});
    sequence_of_row.insert(sequence_of_row.end(), shape.rows, i);
  }
  for (int i = 0; i < shape.batch; ++i) {
    sequences_.push_back({i * shape.rows, shape.rows, shape.context - shape.rows, blocks_[i]});
  }
  const int64_t stride = int64_t{1} * shape.heads * layout.head_dim;
  params_ = {
      .step = {.sequence_of_row = bench.Upload(sequence_of_row),
               .sequences = bench.Upload(on_device),
               .blocks = bench.Upload(std::vector<int32_t>(all.begin(), all.end())),
               .rows = rows},
      .q = bench.Random(2 * rows * stride),
      .out = bench.Random(2 * rows * stride),
      .q_stride = stride,
      .out_stride = stride,
      .heads = shape.heads,
      .scale = 1 / std::sqrt(static_cast<float>(layout.head_dim)),
      .pages = PagesOf({bench.Random(all.size() * layout.BlockBytes()), layout}, /*layer=*/0)};
}

double PagedStep::KvBytes() const {
  return 2.0 * shape_.batch * shape_.context * layout_.kv_heads *
         static_cast<double>(layout_.TokenBytes());
}

double PagedStep::Flops() const {
  const double seen = shape_.rows * (shape_.context - shape_.rows + (shape_.rows + 1) / 2.0);
  return 4.0 * shape_.batch * shape_.heads * layout_.head_dim * seen;
}

KvLayout AttentionLayout(bool tiny, int block_tokens) {
  return {.layers = 1,
          .kv_heads = AttentionHeads(tiny) / 4,
          .head_dim = tiny ? 64 : 128,
          .block_tokens = block_tokens,
          .type = DType::kBF16};
}

int AttentionHeads(bool tiny) { return tiny ? 4 : 32; }

}  // namespace baton
