#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/types.h"
#include "kernels/backend/dtype.h"

namespace baton {

// Where every K and V value lies in a KV pool. The only definition there is: kernels, transfers and
// fingerprints all ask here. A pool is `[block][layer][K|V][kv_head][token][head_dim]` of `type`,
// so a block is one run to ship, a layer of it is one run, and a group of heads of one plane is one
// run.
struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 0;  // token slots per block
  DType type = DType::kF32;

  enum Plane { kKeys = 0, kValues = 1 };

  size_t TokenBytes() const { return head_dim * DTypeBytes(type); }  // of one head
  size_t HeadBytes() const { return block_tokens * TokenBytes(); }
  size_t PlaneBytes() const { return kv_heads * HeadBytes(); }
  size_t LayerBytes() const { return 2 * PlaneBytes(); }
  size_t BlockBytes() const { return layers * LayerBytes(); }

  // Byte offsets from the start of the pool.
  size_t BlockOffset(BlockId block) const { return static_cast<size_t>(block) * BlockBytes(); }
  size_t LayerOffset(BlockId block, int layer) const {
    return BlockOffset(block) + layer * LayerBytes();
  }
  // The first token slot of one head; token t lies t * TokenBytes() further.
  size_t HeadOffset(BlockId block, int layer, Plane plane, int kv_head) const {
    return LayerOffset(block, layer) + plane * PlaneBytes() + kv_head * HeadBytes();
  }

  int BlocksFor(int tokens) const { return (tokens + block_tokens - 1) / block_tokens; }

  // Equal exactly when two pools are laid out alike. Travels with every ticket.
  std::string Fingerprint() const {
    return absl::StrCat("block.layer.kv.head.token.dim/", layers, "x2x", kv_heads, "x",
                        block_tokens, "x", head_dim, "/", DTypeName(type));
  }
};

}  // namespace baton
