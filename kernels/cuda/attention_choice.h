#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels.h"

namespace baton {

enum class AttentionKernel {
  kPaged,    // paged_attention: everything
  kSplit,    // attention_plan, split_attention, merge_attention
  kPrefill,  // prefill_attention, with the bits of kSplit
};

// What computes attention of such q and pages on a device whose blocks may have that much shared
// memory, in a step where no sequence has more than `most_rows` rows. Whether it is kPaged depends
// on q and pages alone: its bits are others, and a row's must not depend on who else is in its
// step.
AttentionKernel ChooseAttention(const PagedAttentionParams& params, int most_rows,
                                size_t shared_bytes);

// Which of KernelTable::split_attention and prefill_attention takes such pages; -1: none.
int AttentionKernelIndex(const LayerPages& pages);

// Of what split_attention leaves of one row and head in one range: values, and two sums.
constexpr int64_t AttentionLineBytes(int head_dim) {
  return (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

// How many rows of a sequence split_attention takes together: as many as there are lines for.
int AttentionTileRows(const PagedAttentionParams& params);

}  // namespace baton
