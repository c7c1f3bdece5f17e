#pragma once

// Loads q, keys and values into shared memory. Included by kernels only.

#include "kernels/cuda/kernels/attention_rows.h"
#include "kernels/cuda/kernels/attention_tile.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Number of elements in one stage of the pipeline: the keys of a tile, then its values.
template <int kHeadDim>
constexpr int kStage = 2 * kAttentionTileKeys* kTilePitch<kHeadDim>;

// Loads q of a tile's rows: for each row, the query heads that read one KV head. Fills the rest of
// the 16 rows of the mma with zeros.
template <typename T, int kHeadDim>
BATON_DEVICE void LoadQueries(const PagedAttentionParams& params, const RowTile& tile, int kv_head,
                              int group, T* queries) {
  constexpr int kOctets = kHeadDim / kOctet;
  for (int i = Lane(); i < kAttentionTileRows * kOctets; i += 32) {
    const int line = i / kOctets, begin = i % kOctets * kOctet;
    const bool valid = line < tile.rows * group;
    const Bf16* const q = static_cast<const Bf16*>(params.q) +
                          (tile.first_row + line / group) * params.q_stride +
                          static_cast<int64_t>(kv_head * group + line % group) * kHeadDim + begin;
    float x[kOctet];
    LoadOctet(q, valid ? kOctet : 0, x);
    *reinterpret_cast<Vector16*>(&queries[line * kTilePitch<kHeadDim> + begin]) = Vector16{
        Pack<T>(x[0], x[1]), Pack<T>(x[2], x[3]), Pack<T>(x[4], x[5]), Pack<T>(x[6], x[7])};
  }
}

// Copies keys and values of one sequence and one KV head into shared memory, one tile of
// kAttentionTileKeys after another. If each tile lies in one KV block, there is one look-up in the
// block table for each tile, made one tile ahead. Otherwise there is one look-up for each key. All
// `kThreads` threads of the thread block call each function. Four threads copy a key, so they read
// 64 neighbouring bytes at a time.
template <typename T, int kHeadDim, int kThreads>
class TileLoader {
 public:
  // The first tile is the one that holds the key at position `first`. Keys outside of [first, last]
  // are not read.
  BATON_DEVICE TileLoader(const LayerPages& pages, const int32_t* blocks, int kv_head, int first,
                          int last)
      : pages_(pages),
        blocks_(blocks),
        kv_head_(kv_head),
        first_(first),
        last_(last),
        tile_(first / kAttentionTileKeys * kAttentionTileKeys) {
    if (!InOneBlock()) return;
    const int index = tile_ / pages.block_tokens;
    offset_ = tile_ - index * pages.block_tokens;
    blocks_ += index;
    block_ = *blocks_;
    first_slot_ =
        static_cast<const char*>(pages.data) + pages.key_offset + kv_head * pages.head_bytes;
  }

  BATON_DEVICE bool Done() const { return tile_ > last_; }

  // Starts to copy the next tile's keys and values to `stage`, keys first. Keys and values outside
  // of [first, last] become zeros. Must not be called after Done().
  BATON_DEVICE void LoadNext(T* stage) {
    if (InOneBlock()) {
      const char* const slots = first_slot_ + static_cast<int64_t>(block_) * pages_.block_bytes;
      const int own = (offset_ + ThreadIndex() / 4) * kHeadDim + OwnOctet(0);
      const T* const keys = reinterpret_cast<const T*>(slots) + own;
      const T* const values =
          reinterpret_cast<const T*>(slots + (pages_.value_offset - pages_.key_offset)) + own;
      BATON_UNROLL
      for (int part = 0; part < kAttentionTileKeys; part += kThreads / 4) {
        CopyKey(part, keys + part * kHeadDim, values + part * kHeadDim, stage);
      }
      offset_ += kAttentionTileKeys;
      if (offset_ == pages_.block_tokens) {
        offset_ = 0;
        ++blocks_;
        if (tile_ + kAttentionTileKeys <= last_) block_ = *blocks_;
      }
    } else {  // not unrolled, because this case is rare and its code is large
      BATON_NO_UNROLL
      for (int part = 0; part < kAttentionTileKeys; part += kThreads / 4) {
        const int key = tile_ + part + ThreadIndex() / 4;
        const T *keys = nullptr, *values = nullptr;
        if (IsSeen(key)) {
          keys = Slot<T>(pages_, pages_.key_offset, blocks_, key, kv_head_) + OwnOctet(0);
          values = Slot<T>(pages_, pages_.value_offset, blocks_, key, kv_head_) + OwnOctet(0);
        }
        CopyKey(part, keys, values, stage);
      }
    }
    tile_ += kAttentionTileKeys;
  }

 private:
  // Returns true if KV blocks are multiples of a tile. Each tile then lies in one KV block, because
  // tiles begin at multiples of their size.
  BATON_DEVICE bool InOneBlock() const { return pages_.block_tokens % kAttentionTileKeys == 0; }
  BATON_DEVICE bool IsSeen(int key) const { return key >= first_ && key <= last_; }
  // Four threads copy the four octets (groups of eight elements) from number `octet` on. Returns
  // the first element of this thread's octet.
  BATON_DEVICE static int OwnOctet(int octet) { return (octet + ThreadIndex() % 4) * kOctet; }
  // Copies the octets (eight neighbouring elements) of one key and its value that belong to this
  // thread. The key's index in the tile is `part` + ThreadIndex() / 4.
  BATON_DEVICE void CopyKey(int part, const T* keys, const T* values, T* stage) const {
    constexpr int kPitch = kTilePitch<kHeadDim>;
    const int line = part + ThreadIndex() / 4;
    const bool seen = IsSeen(tile_ + line);
    T* const to = stage + line * kPitch + OwnOctet(0);
    BATON_UNROLL
    for (int octet = 0; octet < kHeadDim / kOctet; octet += 4) {
      if (OwnOctet(octet) < kHeadDim) {
        CopyAsync16(to + octet * kOctet, keys + octet * kOctet, seen);
        CopyAsync16(to + kAttentionTileKeys * kPitch + octet * kOctet, values + octet * kOctet,
                    seen);
      }
    }
  }

  const LayerPages& pages_;
  // Points into the sequence's block table. If each tile lies in one block (InOneBlock()), points
  // to the entry of the next tile's block; otherwise to the first entry of the table.
  const int32_t* blocks_;
  const int kv_head_, first_, last_;
  int tile_;  // position of the next tile's first key
  // Used only if InOneBlock(): the KV block of the next tile, and the tile's first token in that
  // block.
  int block_ = 0;
  int offset_ = 0;
  // Address of this KV head's first key in the pool's first block.
  const char* first_slot_ = nullptr;
};

}  // namespace baton::BATON_DEVICE_NAMESPACE
