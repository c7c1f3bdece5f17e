#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// Returns whether split_attention and prefill_attention, which use tensor cores, can compute
// attention of such q and pages on a device whose thread blocks may have `shared_bytes` of shared
// memory; otherwise paged_attention computes it. The answer depends on q and pages alone: the bits
// of paged_attention differ from those of the other two, and a row's bits must not depend on which
// other rows are in its step.
bool UsesTensorCores(const PagedAttentionParams& params, size_t shared_bytes);

// Returns the number of rows from which on prefill_attention takes a sequence of a step;
// split_attention takes the shorter ones. Both give a row the same bits. With fewer rows than
// these, warps of a thread block of prefill_attention would have none. INT32_MAX where
// prefill_attention does not fit in `shared_bytes`. UsesTensorCores must be true.
int32_t PrefillAttentionRows(const PagedAttentionParams& params, size_t shared_bytes);

// Returns the index into KernelTable::split_attention and prefill_attention for such pages, or -1
// where there is none.
int AttentionKernelIndex(const LayerPages& pages);

// Returns the bytes of a partial result of split_attention for one row, one head and one range: the
// weighted values and two sums.
constexpr int64_t AttentionLineBytes(int head_dim) {
  return (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

// Returns how many rows of a sequence split_attention takes together: their query heads of one KV
// head fill the rows of one mma.
int AttentionTileRows(const PagedAttentionParams& params);

}  // namespace baton
