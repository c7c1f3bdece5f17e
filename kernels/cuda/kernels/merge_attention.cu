#include "kernels/cuda/kernels/attention_rows.h"
#include "kernels/cuda/kernels/attention_tile.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/octet.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// Each warp takes a row (x) and a head (y). Each lane merges eight elements of the head over all
// ranges of the row.
BATON_KERNEL(merge_attention, SplitAttentionParams, kMergeAttentionWarps * 32) {
  const PagedAttentionParams& attention = params.attention;
  const LayerPages& pages = attention.pages;
  const int row = params.plan.first_row + BlockX(), head = BlockY() * kMergeAttentionWarps + Warp();
  const int begin = Lane() * kOctet, group = attention.heads / pages.kv_heads;
  const RowTile tile = TileOf(params.plan, row);
  if (tile.rows > 0 && head < attention.heads && begin < pages.head_dim) {
    const int position = tile.place.position + row - tile.first_row;
    const int of_tile = tile.FirstRange(attention.window);
    // The first range of keys that this row sees. Earlier rows of the tile may see an earlier
    // range.
    const int first = FirstKey(position, attention.window) / kAttentionRange;
    const int last = position / kAttentionRange;
    const int64_t item = params.plan.first_item[tile.first_row - params.plan.first_row] - of_tile;
    float max = -kInfinity, sum = 0, out[kOctet] = {};
    for (int range = first; range <= last; ++range) {
      const int64_t line =
          ((item + range) * pages.kv_heads + head / group) * (params.plan.tile_rows * group) +
          (row - tile.first_row) * group + head % group;
      float values[kOctet];
      LoadOctet(params.values + line * pages.head_dim + begin, kOctet, values);
      const RangeMerge merge(&max, params.sums[2 * line]);
      sum = merge.Of(sum, params.sums[2 * line + 1]);
      BATON_UNROLL
      for (int i = 0; i < kOctet; ++i) out[i] = merge.Of(out[i], values[i]);
    }
    // Adds 0, which turns -0 into 0 and changes nothing else. Computing a tile of keys none of
    // which this row sees may have turned -0 into 0. Such a tile must not change any bit of the
    // result.
    BATON_UNROLL
    for (int i = 0; i < kOctet; ++i) out[i] = out[i] / sum + 0.0f;
    StoreOctet(static_cast<Bf16*>(attention.out) + row * attention.out_stride +
                   static_cast<int64_t>(head) * pages.head_dim + begin,
               kOctet, out);
  }
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
