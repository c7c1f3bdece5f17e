#include "kernels/cuda/kernels/attention_load.h"
#include "kernels/cuda/kernels/attention_rows.h"
#include "kernels/cuda/kernels/attention_score.h"
#include "kernels/cuda/kernels/attention_tile.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {
namespace {

template <typename T, int kHeadDim>
BATON_DEVICE void Attend(const SplitAttentionParams& params, T* shared) {
  constexpr int kPitch = kTilePitch<kHeadDim>, kStages = kAttentionStages<kHeadDim>;
  static_assert(kAttentionRange % kAttentionTileKeys == 0);
  const PagedAttentionParams& attention = params.attention;
  const LayerPages& pages = attention.pages;
  const ScoreScale scale(attention.scale, attention.soft_cap);
  const int window = attention.window, group = attention.heads / pages.kv_heads;
  const int units = params.plan.first_item[params.plan.rows] * pages.kv_heads;
  T* const stages = shared + kAttentionTileRows * kPitch;

  for (int unit = BlockX(); unit < units; unit += GridX()) {
    const int kv_head = unit % pages.kv_heads;
    const AttentionItem item = params.plan.items[unit / pages.kv_heads];
    const RowTile rows = TileOf(params.plan, item.row);
    const int32_t* const blocks = BlocksOf(attention.step, rows.place);

    // The first and the last key of this range that some row of the tile sees.
    const int range = item.range * kAttentionRange;
    const int first_seen = FirstKey(rows.place.position, window);
    const int first = first_seen > range ? first_seen : range;
    const int range_end = range + kAttentionRange - 1;
    const int last = rows.LastKey() < range_end ? rows.LastKey() : range_end;
    const int first_tile = first / kAttentionTileKeys, last_tile = last / kAttentionTileKeys;
    TileLoader<T, kHeadDim, 32> loader(pages, blocks, kv_head, first, last);
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (!loader.Done()) loader.LoadNext(&stages[stage * kStage<kHeadDim>]);
      CopyAsyncCommit();
    }

    LoadQueries<T, kHeadDim>(attention, rows, kv_head, group, shared);
    SyncWarp();
    TileQueries<T, kHeadDim> queries;
    queries.rows = shared;
    queries.Hold();
    // Rows of the mma beyond the tile's rows are computed too, but their results are not used.
    TileView view;
    BATON_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int line = Lane() / 4 + 8 * i;
      const int position = rows.place.position + line / group;
      view.first[i] = FirstKey(position, window);
      view.last[i] = position;
    }

    TileState<kHeadDim> state;
    int read = 0;  // the stage to read next
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      CopyAsyncWait<kStages - 2>();
      // After this barrier, the copies of all lanes have arrived, and all lanes have finished
      // reading the stage that is filled next.
      SyncWarp();
      const int filled = read == 0 ? kStages - 1 : read - 1;
      if (!loader.Done()) loader.LoadNext(&stages[filled * kStage<kHeadDim>]);
      CopyAsyncCommit();
      const T* const stage = &stages[read * kStage<kHeadDim>];
      read = read == kStages - 1 ? 0 : read + 1;
      AddTile<T, kHeadDim>(queries, stage, stage + kAttentionTileKeys * kPitch,
                           tile * kAttentionTileKeys, view, scale, &state);
    }
    // Waits until all lanes have finished reading q and the stages (buffers of keys and values).
    // The warp overwrites both for its next unit of work.
    SyncWarp();

    const int64_t lines = static_cast<int64_t>(unit) * params.plan.tile_rows * group;
    BATON_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int line = Lane() / 4 + 8 * i;
      if (line < rows.rows * group) {
        float* const values = params.values + (lines + line) * kHeadDim + Lane() % 4 * 2;
        BATON_UNROLL
        for (int n = 0; n < kHeadDim / 8; ++n) {
          values[8 * n] = state.values[n][2 * i];
          values[8 * n + 1] = state.values[n][2 * i + 1];
        }
        if (Lane() % 4 == 0) {
          params.sums[2 * (lines + line)] = state.max[i];
          params.sums[2 * (lines + line) + 1] = state.sum[2 * i];
        }
      }
    }
  }
}

}  // namespace

// Each thread block is one warp. It takes units (a tile of rows, a range of keys, and a KV head)
// until none is left. For a unit it reads 2 * head_dim elements per key, once for all query heads
// of the KV head, and writes head_dim + 2 floats per row and head.
#define BATON_SPLIT_ATTENTION(name, T, head_dim)                            \
  static_assert(SplitAttentionSharedBytes(head_dim) ==                      \
                (kAttentionTileRows * kTilePitch<head_dim> +                \
                 kAttentionStages<head_dim> * kStage<head_dim>)*sizeof(T)); \
  BATON_KERNEL(name, SplitAttentionParams, 32) {                            \
    BATON_DYNAMIC_SHARED(T, shared);                                        \
    Attend<T, head_dim>(params, shared);                                    \
  }
BATON_SPLIT_ATTENTION(split_attention_64, Bf16, 64)
BATON_SPLIT_ATTENTION(split_attention_80, Bf16, 80)
BATON_SPLIT_ATTENTION(split_attention_96, Bf16, 96)
BATON_SPLIT_ATTENTION(split_attention_128, Bf16, 128)
BATON_SPLIT_ATTENTION(split_attention_256, Bf16, 256)
BATON_SPLIT_ATTENTION(split_attention_f16_64, Half, 64)
BATON_SPLIT_ATTENTION(split_attention_f16_80, Half, 80)
BATON_SPLIT_ATTENTION(split_attention_f16_96, Half, 96)
BATON_SPLIT_ATTENTION(split_attention_f16_128, Half, 128)
BATON_SPLIT_ATTENTION(split_attention_f16_256, Half, 256)

}  // namespace baton::BATON_DEVICE_NAMESPACE
