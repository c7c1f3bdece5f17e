#include "kernels/cuda/kernels/attention_rows.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

// One warp takes 32 rows at a time, one row per lane. If a tile begins with the lane's row, the
// lane lists the tile's work items, one for each range of keys.
BATON_KERNEL(attention_plan, AttentionPlanParams, 32) {
  int items = 0;  // number of items of earlier rows
  for (int base = 0; base < params.rows; base += 32) {
    const int row = base + Lane();
    int first_range = 0, ranges = 0;
    if (row < params.rows) {
      const RowTile tile = TileOf(params, params.first_row + row);
      if (tile.rows > 0 && tile.first_row == params.first_row + row) {
        first_range = tile.FirstRange(params.window);
        ranges = tile.LastKey() / kAttentionRange + 1 - first_range;
      }
    }
    int end = ranges;  // end of this row's items, counted from `items`
    for (int by = 1; by < 32; by *= 2) {
      const int before = Shuffle(end, Lane() < by ? Lane() : Lane() - by);
      end += Lane() >= by ? before : 0;
    }
    if (row < params.rows) params.first_item[row] = items + end - ranges;
    for (int i = 0; i < ranges; ++i) {
      params.items[items + end - ranges + i] = {params.first_row + row, first_range + i};
    }
    items += Shuffle(end, 31);
  }
  if (Lane() == 0) params.first_item[params.rows] = items;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
