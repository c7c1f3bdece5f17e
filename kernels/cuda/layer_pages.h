#pragma once

#include <cstdint>

#include "kernels/backend/backend.h"
#include "kernels/cuda/kernels/kernels.h"

namespace baton {

// Returns the places of all K and V of a layer in a pool.
inline LayerPages PagesOf(const KvView& kv, int layer) {
  const KvLayout& layout = kv.layout;
  return {.data = kv.data,
          .block_bytes = static_cast<int64_t>(layout.BlockBytes()),
          .key_offset = static_cast<int64_t>(layout.HeadOffset(0, layer, KvLayout::kKeys, 0)),
          .value_offset = static_cast<int64_t>(layout.HeadOffset(0, layer, KvLayout::kValues, 0)),
          .head_bytes = static_cast<int64_t>(layout.HeadBytes()),
          .block_tokens = layout.block_tokens,
          .kv_heads = layout.kv_heads,
          .head_dim = layout.head_dim,
          .type = layout.type};
}

}  // namespace baton
