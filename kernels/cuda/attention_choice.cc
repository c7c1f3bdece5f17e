#include "kernels/cuda/attention_choice.h"

#include <cstdint>
#include <iterator>

namespace baton {

int AttentionKernelIndex(const LayerPages& pages) {
  constexpr int kDims = std::size(kAttentionHeadDims);
  if (pages.type == DType::kF32) return -1;
  for (int i = 0; i < kDims; ++i) {
    if (kAttentionHeadDims[i] == pages.head_dim) return pages.type == DType::kF16 ? kDims + i : i;
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
  const bool split = AttentionKernelIndex(pages) >= 0 &&
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
