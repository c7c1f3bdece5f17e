#include "kernels/cuda/attention_choice.h"

#include <cstdint>
#include <iterator>

namespace baton {

int AttentionHeadDimIndex(int head_dim) {
  for (size_t i = 0; i < std::size(kAttentionHeadDims); ++i) {
    if (kAttentionHeadDims[i] == head_dim) return static_cast<int>(i);
  }
  return -1;
}

int AttentionTileRows(const PagedAttentionParams& params) {
  return kAttentionTileRows / (params.heads / params.pages.kv_heads);
}

AttentionKernel ChooseAttention(const PagedAttentionParams& params, int most_rows,
                                size_t shared_bytes) {
  const LayerPages& pages = params.pages;
  // Every slot of a head_dim above begins at a multiple of 16 bytes if these do.
  const bool aligned = (reinterpret_cast<uintptr_t>(pages.data) | pages.block_bytes |
                        pages.key_offset | pages.value_offset | pages.head_bytes) %
                           16 ==
                       0;
  const bool split = pages.type == DType::kBF16 && AttentionHeadDimIndex(pages.head_dim) >= 0 &&
                     params.heads / pages.kv_heads <= kAttentionTileRows && aligned &&
                     SplitAttentionSharedBytes(pages.head_dim) <= shared_bytes;
  if (!split) return AttentionKernel::kPaged;
  // Fewer would leave warps of a block without rows.
  const bool many = most_rows >= AttentionTileRows(params) * kPrefillAttentionWarps;
  return many && PrefillAttentionSharedBytes(pages.head_dim) <= shared_bytes
             ? AttentionKernel::kPrefill
             : AttentionKernel::kSplit;
}

}  // namespace baton
