#pragma once

// The tiles of rows that split attention computes together, and the keys that rows see. Included by
// kernels only.

#include "kernels/cuda/kernels/kernels.h"
#include "kernels/cuda/kernels/step_rows.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

BATON_DEVICE int FirstKey(int position, int window) {
  return window > 0 && position >= window ? position + 1 - window : 0;
}

// A tile: up to `tile_rows` neighbouring rows of one sequence.
struct RowTile {
  int first_row, rows;
  RowPlace place;  // sequence and position of first_row

  BATON_DEVICE int FirstRange(int window) const {
    return FirstKey(place.position, window) / kAttentionRange;
  }
  BATON_DEVICE int LastKey() const { return place.position + rows - 1; }
};

// Returns the tile that holds `row`. The tile has no rows if no sequence owns the row, or if
// prefill_attention computes it.
BATON_DEVICE RowTile TileOf(const AttentionPlanParams& plan, int row) {
  RowTile tile = {row, 0, PlaceOf(plan.step, row)};
  const int sequence = tile.place.sequence;
  if (sequence < 0 || plan.step.sequences[sequence].rows >= plan.prefill_rows) {
    return tile;
  }
  const int begins = plan.step.sequences[sequence].first_row;
  const int first = begins > plan.first_row ? begins : plan.first_row;
  const int before = (row - first) % plan.tile_rows;
  tile.first_row -= before;
  tile.place.position -= before;
  const int end = plan.first_row + plan.rows;
  tile.rows = before + 1;
  while (tile.rows < plan.tile_rows && tile.first_row + tile.rows < end &&
         plan.step.sequence_of_row[tile.first_row + tile.rows] == sequence) {
    ++tile.rows;
  }
  return tile;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
