#pragma once

// The ways of q, keys and values into shared memory. Included by kernels alone.

#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/octet.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Elements of one stage: keys, then values.
template <int kHeadDim>
constexpr int kStage = 2 * kAttentionTileKeys* kTilePitch<kHeadDim>;

// q of a tile's rows, head after head of the group, and zeros up to 16 rows.
template <typename T, int kHeadDim>
BATON_DEVICE void LoadQueries(const PagedAttentionParams& params, const RowTile& tile, int kv_head,
                              int group, T* queries) {
  constexpr int kOctets = kHeadDim / kOctet;
  for (int i = Lane(); i < kAttentionTileRows * kOctets; i += 32) {
    const int line = i / kOctets, begin = i % kOctets * kOctet;
    const bool valid = BATON_MUTATE("attention load: mask of q", line < tile.rows * group, true);
    const Bf16* const q =
        static_cast<const Bf16*>(params.q) + (tile.first_row + line / group) * params.q_stride +
        static_cast<int64_t>(BATON_MUTATE("attention load: heads of a group",
                                          kv_head * group + line % group, line % group)) *
            kHeadDim +
        begin;
    float x[kOctet];
    LoadOctet(q, valid ? kOctet : 0, x);
    *reinterpret_cast<Vector16*>(&queries[line * kTilePitch<kHeadDim> + begin]) = Vector16{
        Pack<T>(x[0], x[1]), Pack<T>(x[2], x[3]), Pack<T>(x[4], x[5]), Pack<T>(x[6], x[7])};
  }
}

// Keys, then values of the tile at position `tile` on their way to one stage; zeros for those
// outside of [first, last]. Four of a block's threads take a key, so that they read 64 neighbouring
// bytes.
template <typename T, int kHeadDim, int kThreads>
BATON_DEVICE void LoadTile(const LayerPages& pages, const int32_t* blocks, int kv_head, int tile,
                           int first, int last, T* stage) {
  constexpr int kPitch = kTilePitch<kHeadDim>;
  BATON_UNROLL
  for (int part = 0; part < kAttentionTileKeys; part += kThreads / 4) {
    const int line = part + ThreadIndex() / 4, key = tile + line;
    const bool valid = BATON_MUTATE("attention load: keys before the window", key >= first, true) &&
                       BATON_MUTATE("attention load: later keys", key <= last, true);
    const T *keys = nullptr, *values = nullptr;
    if (valid) {
      keys = Slot<T>(pages, pages.key_offset, blocks, key, kv_head);
      values = Slot<T>(pages,
                       BATON_MUTATE("attention load: values", pages.value_offset, pages.key_offset),
                       blocks, key, kv_head);
    }
    BATON_UNROLL
    for (int octet = 0; octet < kHeadDim / kOctet; octet += 4) {
      const int begin = (octet + ThreadIndex() % 4) * kOctet;
      if (begin < kHeadDim) {
        CopyAsync16(&stage[line * kPitch + begin], keys + begin, valid);
        CopyAsync16(&stage[(kAttentionTileKeys + line) * kPitch + begin], values + begin, valid);
      }
    }
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
