#pragma once

// The sequence and position of a row of a step, and the addresses of its K and V. Included by
// kernels only.

#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

struct RowPlace {
  int sequence;  // -1: a padding row
  int position;
};

BATON_DEVICE RowPlace PlaceOf(const StepRows& step, int row) {
  const int sequence = step.sequence_of_row[row];
  if (sequence < 0) return {-1, 0};
  const DeviceSequence at = step.sequences[sequence];
  return {sequence, at.first_position + row - at.first_row};
}

// Returns the block table of the row's sequence.
BATON_DEVICE const int32_t* BlocksOf(const StepRows& step, const RowPlace& place) {
  return step.blocks + step.sequences[place.sequence].first_block;
}

// Returns the head_dim elements of one KV head at one position. `plane_offset` is the offset of the
// layer's keys or values in a block.
template <typename T>
BATON_DEVICE T* Slot(const LayerPages& pages, int64_t plane_offset, const int32_t* blocks,
                     int position, int kv_head) {
  const int64_t block = blocks[position / pages.block_tokens];
  char* const head = static_cast<char*>(pages.data) + block * pages.block_bytes + plane_offset +
                     kv_head * pages.head_bytes;
  return reinterpret_cast<T*>(head) +
         static_cast<int64_t>(position % pages.block_tokens) * pages.head_dim;
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
