#include "kernels/cuda/kernels/attention_choice.h"

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

bool UsesTensorCores(const PagedAttentionParams& params, size_t shared_bytes) {
  const LayerPages& pages = params.pages;
  // Checks that these addresses and sizes are multiples of 16 bytes. The addresses of all slots are
  // then multiples of 16, too, with each of the supported head_dims.
  const bool aligned = (reinterpret_cast<uintptr_t>(pages.data) | pages.block_bytes |
                        pages.key_offset | pages.value_offset | pages.head_bytes) %
                           16 ==
                       0;
  return AttentionKernelIndex(pages) >= 0 && params.heads / pages.kv_heads <= kAttentionTileRows &&
         aligned && SplitAttentionSharedBytes(pages.head_dim) <= shared_bytes;
}

int32_t PrefillAttentionRows(const PagedAttentionParams& params, size_t shared_bytes) {
  if (PrefillAttentionSharedBytes(params.pages.head_dim) > shared_bytes) return INT32_MAX;
  return AttentionTileRows(params) * kPrefillAttentionWarps;
}

}  // namespace baton
