#include "kernels/cuda/kernels/attention_load.h"
#include "kernels/cuda/kernels/attention_rows.h"
#include "kernels/cuda/kernels/attention_score.h"
#include "kernels/cuda/kernels/attention_tile.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

// Sums of attention over the ranges of kAttentionRange keys that are done. Each lane keeps its own
// values, in the layout of an mma result, in shared memory. There, the values of neighbouring lanes
// are one word apart.
template <int kHeadDim>
struct RangesState {
  float* values;  // [kHeadDim / 2][32], from this lane's first value on
  float sum[2] = {}, max[2] = {-kInfinity, -kInfinity};

  BATON_DEVICE explicit RangesState(float* of_warp) : values(of_warp + Lane()) {
    BATON_UNROLL
    for (int i = 0; i < kHeadDim / 2; ++i) values[32 * i] = 0;
  }
  // Adds the sums of a range to those of earlier ranges. Skips rows of the mma that see no key of
  // the range.
  BATON_DEVICE void Add(const TileState<kHeadDim>& range) {
    BATON_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (range.max[i] == -kInfinity) {
        continue;
      }
      const RangeMerge merge(&max[i], range.max[i]);
      sum[i] = merge.Of(sum[i], range.sum[2 * i]);
      BATON_UNROLL
      for (int n = 0; n < kHeadDim / 8; ++n) {
        BATON_UNROLL
        for (int c = 0; c < 2; ++c) {
          float* const value = &values[32 * (4 * n + 2 * i + c)];
          *value = merge.Of(*value, range.values[n][2 * i + c]);
        }
      }
    }
  }
};

// Returns tile number `index` of the sequences that have at least `prefill_rows` rows. A sequence's
// last tile comes first, because it sees the most keys and so takes longest. All lanes of a warp
// call this together; they look at 32 sequences at a time.
BATON_DEVICE RowTile TileAt(const PrefillAttentionParams& params, int index) {
  const DeviceSequence* const sequences = params.attention.step.sequences;
  for (int base = 0;; base += 32) {
    const int own = base + Lane();
    const int own_rows = own < params.sequences ? sequences[own].rows : 0;
    const bool takes = own_rows >= params.prefill_rows;
    const int tiles = takes ? (own_rows + params.tile_rows - 1) / params.tile_rows : 0;
    int end = tiles;
    BATON_UNROLL
    for (int by = 1; by < 32; by *= 2) {
      const int before = Shuffle(end, Lane() < by ? Lane() : Lane() - by);
      end += Lane() >= by ? before : 0;
    }
    const uint32_t after = Ballot(index < end);
    if (after == 0) {
      index -= Shuffle(end, 31);
      continue;
    }
    int lane = 0;
    while ((after >> lane & 1) == 0) ++lane;
    index -= Shuffle(end - tiles, lane);
    const DeviceSequence at = sequences[base + lane];
    const int skipped = (Shuffle(tiles, lane) - 1 - index) * params.tile_rows;
    const int left = at.rows - skipped;
    const int rows = left < params.tile_rows ? left : params.tile_rows;
    return {at.first_row + skipped, rows, {base + lane, at.first_position + skipped}};
  }
}

template <typename T, int kHeadDim>
BATON_DEVICE void Prefill(const PrefillAttentionParams& params, T* shared) {
  constexpr int kPitch = kTilePitch<kHeadDim>, kStages = kAttentionStages<kHeadDim>;
  constexpr int kTilesOfRange = kAttentionRange / kAttentionTileKeys;
  const PagedAttentionParams& attention = params.attention;
  const LayerPages& pages = attention.pages;
  const int kv_head = BlockY(), group = attention.heads / pages.kv_heads;
  const int warp_rows = params.tile_rows / kPrefillAttentionWarps;
  const RowTile block = TileAt(params, BlockX());
  const int32_t* const blocks = BlocksOf(attention.step, block.place);
  T* const queries_of_warp = shared + Warp() * kAttentionTileRows * kPitch;
  T* const stages = shared + kPrefillAttentionWarps * kAttentionTileRows * kPitch;
  float* const values = reinterpret_cast<float*>(stages + kStages * kStage<kHeadDim>);

  // The first and the last key that any row of this block needs.
  const int first = FirstKey(block.place.position, attention.window), last = block.LastKey();
  const int first_tile = first / kAttentionTileKeys, last_tile = last / kAttentionTileKeys;
  TileLoader<T, kHeadDim, kPrefillAttentionWarps * 32> loader(pages, blocks, kv_head, first, last);
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (!loader.Done()) loader.LoadNext(&stages[stage * kStage<kHeadDim>]);
    CopyAsyncCommit();
  }

  // The warp's rows begin `skipped` rows after the thread block's first row. There may be none.
  const int skipped = Warp() * warp_rows;
  const int left = block.rows - skipped;
  const RowTile rows = {block.first_row + skipped,
                        left < 0           ? 0
                        : left < warp_rows ? left
                                           : warp_rows,
                        {block.place.sequence, block.place.position + skipped}};
  LoadQueries<T, kHeadDim>(attention, rows, kv_head, group, queries_of_warp);
  SyncWarp();
  TileQueries<T, kHeadDim> queries;
  queries.rows = queries_of_warp;
  queries.Hold();
  TileView view;
  BATON_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int position = rows.place.position + (Lane() / 4 + 8 * i) / group;
    view.first[i] = FirstKey(position, attention.window);
    view.last[i] = position;
  }
  const ScoreScale scale(attention.scale, attention.soft_cap);
  // First and last key that any row of the warp sees. A warp without rows sees no key; it only
  // takes part in copies and barriers.
  const int seen_first = FirstKey(rows.place.position, attention.window);
  const int seen_last = rows.rows > 0 ? rows.LastKey() : -1;

  RangesState<kHeadDim> ranges(values + Warp() * kAttentionTileRows * kHeadDim);
  TileState<kHeadDim> state;
  int read = 0;  // the stage to read next
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    CopyAsyncWait<kStages - 2>();
    SyncThreads();
    const int filled = read == 0 ? kStages - 1 : read - 1;
    if (!loader.Done()) loader.LoadNext(&stages[filled * kStage<kHeadDim>]);
    CopyAsyncCommit();
    const T* const stage = &stages[read * kStage<kHeadDim>];
    read = read == kStages - 1 ? 0 : read + 1;
    const int begin = tile * kAttentionTileKeys;
    // Skips a tile of which no row of the warp sees a key, because it would change nothing.
    if (begin <= seen_last && begin + kAttentionTileKeys > seen_first) {
      AddTile<T, kHeadDim>(queries, stage, stage + kAttentionTileKeys * kPitch, begin, view, scale,
                           &state);
    }
    if ((tile + 1) % kTilesOfRange == 0 || tile == last_tile) {
      ranges.Add(state);
      state = {};
    }
  }

  BATON_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int line = Lane() / 4 + 8 * i;
    if (line < rows.rows * group) {
      Bf16* const out = static_cast<Bf16*>(attention.out) +
                        (rows.first_row + line / group) * attention.out_stride +
                        static_cast<int64_t>(kv_head * group + line % group) * kHeadDim +
                        Lane() % 4 * 2;
      BATON_UNROLL
      for (int n = 0; n < kHeadDim / 8; ++n) {
        BATON_UNROLL
        for (int c = 0; c < 2; ++c) {
          out[8 * n + c] = ToBf16(ranges.values[32 * (4 * n + 2 * i + c)] / ranges.sum[i] + 0.0f);
        }
      }
    }
  }
}

}  // namespace

// Each thread block takes a tile of rows (x) and a KV head (y), and each of its warps takes 16
// query heads of these rows. Keys and values are read once for all warps: 2 * head_dim elements per
// key.
#define BATON_PREFILL_ATTENTION(name, T, head_dim)                                    \
  static_assert(PrefillAttentionSharedBytes(head_dim) ==                              \
                (kPrefillAttentionWarps * kAttentionTileRows * kTilePitch<head_dim> + \
                 kAttentionStages<head_dim> * kStage<head_dim>)*sizeof(T) +           \
                    kPrefillAttentionWarps * kAttentionTileRows * head_dim * 4);      \
  BATON_KERNEL(name, PrefillAttentionParams, kPrefillAttentionWarps * 32) {           \
    BATON_DYNAMIC_SHARED(T, shared);                                                  \
    Prefill<T, head_dim>(params, shared);                                             \
  }
BATON_PREFILL_ATTENTION(prefill_attention_64, Bf16, 64)
BATON_PREFILL_ATTENTION(prefill_attention_80, Bf16, 80)
BATON_PREFILL_ATTENTION(prefill_attention_96, Bf16, 96)
BATON_PREFILL_ATTENTION(prefill_attention_128, Bf16, 128)
BATON_PREFILL_ATTENTION(prefill_attention_256, Bf16, 256)
BATON_PREFILL_ATTENTION(prefill_attention_f16_64, Half, 64)
BATON_PREFILL_ATTENTION(prefill_attention_f16_80, Half, 80)
BATON_PREFILL_ATTENTION(prefill_attention_f16_96, Half, 96)
BATON_PREFILL_ATTENTION(prefill_attention_f16_128, Half, 128)
BATON_PREFILL_ATTENTION(prefill_attention_f16_256, Half, 256)

}  // namespace baton::BATON_DEVICE_NAMESPACE
