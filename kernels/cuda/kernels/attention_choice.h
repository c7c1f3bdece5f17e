#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// Returns true if split_attention and prefill_attention, which use tensor cores, can compute
// attention of this q and these pages on a device whose thread blocks may have `shared_bytes` of
// shared memory. If not, paged_attention computes it. The answer does not depend on rows: the bits
// of paged_attention differ from those of the other two, and a row's bits must not depend on which
// other rows are in its step.
bool UsesTensorCores(const PagedAttentionParams& params, size_t shared_bytes);

// Returns the least number of rows of a sequence in a step for which prefill_attention computes it;
// split_attention computes shorter ones. Both give a row the same bits. With fewer rows, some warps
// of a thread block of prefill_attention would have no rows. Returns INT32_MAX if prefill_attention
// does not fit in `shared_bytes`. UsesTensorCores must be true.
int32_t PrefillAttentionRows(const PagedAttentionParams& params, size_t shared_bytes);

// Returns the index into KernelTable::split_attention and prefill_attention for these pages, or -1
// if no such kernel supports them.
int AttentionKernelIndex(const LayerPages& pages);

// Returns the bytes of a partial result of split_attention for one row, one head and one range: the
// sum of weighted values, and two more floats.
constexpr int64_t AttentionLineBytes(int head_dim) {
  return (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

// Returns the max number of rows of a sequence that split_attention takes together. The query heads
// of these rows that read one KV head fill the rows of one mma.
int AttentionTileRows(const PagedAttentionParams& params);

}  // namespace baton
