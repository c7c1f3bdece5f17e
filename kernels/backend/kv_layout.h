#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/types.h"
#include "kernels/formats/dtype.h"

namespace baton {

// Layout of a KV pool: the place of every K and V value. This is the only definition: kernels,
// transfers and fingerprints all use it. A pool is `[block][layer][K|V][kv_head][token][head_dim]`
// of `type`. So a block is one range of bytes, a layer of a block is one range, and so are
// neighbouring heads in one plane (K or V) of a layer.
struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 0;  // token slots per block
  DType type = DType::kF32;

  enum Plane { kKeys = 0, kValues = 1 };

  // Bytes of K, or of V, of one token in one head.
  size_t TokenBytes() const { return head_dim * DTypeBytes(type); }
  size_t HeadBytes() const { return block_tokens * TokenBytes(); }
  size_t PlaneBytes() const { return kv_heads * HeadBytes(); }
  size_t LayerBytes() const { return 2 * PlaneBytes(); }
  size_t BlockBytes() const { return layers * LayerBytes(); }

  // Byte offsets from the start of the pool.
  size_t BlockOffset(BlockId block) const { return static_cast<size_t>(block) * BlockBytes(); }
  size_t LayerOffset(BlockId block, int layer) const {
    return BlockOffset(block) + layer * LayerBytes();
  }
  // Offset of the first token slot of one head. The slot of token t is t * TokenBytes() further.
  size_t HeadOffset(BlockId block, int layer, Plane plane, int kv_head) const {
    return LayerOffset(block, layer) + plane * PlaneBytes() + kv_head * HeadBytes();
  }

  int BlocksFor(int tokens) const { return (tokens + block_tokens - 1) / block_tokens; }

  // Returns a text that is equal for two pools if and only if their layouts are equal. Every
  // KvTicket contains this text, and a decode worker refuses a ticket with another layout than its
  // own.
  std::string Fingerprint() const {
    return absl::StrCat("block.layer.kv.head.token.dim/", layers, "x2x", kv_heads, "x",
                        block_tokens, "x", head_dim, "/", DTypeName(type));
  }
};

}  // namespace baton
