#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// Returns true if split_attention and prefill_attention, which use tensor cores, can compute the
// attention of `params` on a device whose thread blocks may have `shared_bytes` of shared memory.
// If not, paged_attention computes it, with other bits. The answer does not depend on the number of
// rows, because a row's bits must not depend on which other rows are in its step.
bool UsesTensorCores(const PagedAttentionParams& params, size_t shared_bytes);

// Returns the min number of rows that a sequence must have in a step for prefill_attention to
// compute it. split_attention computes sequences with fewer rows: in prefill_attention, some warps
// of a thread block would have no rows. Both kernels give a row the same bits. Returns INT32_MAX if
// prefill_attention does not fit in `shared_bytes`. UsesTensorCores must be true.
int32_t PrefillAttentionRows(const PagedAttentionParams& params, size_t shared_bytes);

// Returns the index into KernelTable::split_attention and KernelTable::prefill_attention of the
// kernels for `pages`, or -1 if no kernels support such pages.
int AttentionKernelIndex(const LayerPages& pages);

// Returns the bytes of a partial result of split_attention for one row, one head and one range: the
// sum of weighted values, the largest score and the sum of the weights.
constexpr int64_t AttentionLineBytes(int head_dim) {
  return (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

// Returns the max number of rows of a sequence in a tile of split_attention. The mma of a tile has
// one row for each query head of each of these rows.
int AttentionTileRows(const PagedAttentionParams& params);

}  // namespace baton
