#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "router/index/cell_pool.h"

namespace baton {

// Orders records by their last touch, oldest first, as a binary heap. PrefixIndex keeps the leaves
// in it: the names that no other name has as its parent. Keeps each record's position in
// PrefixRecord::leaf_position. One thread only.
//
// Names are added and removed in runs, in which a record is a leaf only until the next name is
// handled. So the records that were pushed last lie beside the heap: most of them are removed
// before they have to be put into it.
class LeafHeap {
 public:
  // Allocates memory for `max` records. `pool` outlives the object.
  LeafHeap(size_t max, CellPool* pool) : pool_(pool) { heap_.reserve(max); }

  // Returns the oldest record; kNoCell if there is none.
  CellId oldest() const;
  // Adds a record that is not in the heap.
  void Push(CellId record);
  // Removes a record that is in the heap.
  void Remove(CellId record);
  // Must follow when a record in the heap was touched, which makes it younger.
  void Touched(CellId record) {
    const uint32_t position = pool_->record(record).leaf_position;
    if (position >= kBeside) Sink(position - kBeside);
  }

 private:
  static constexpr uint32_t kBeside = 4;

  void Place(CellId record, size_t at);
  void Rise(size_t at);
  void Sink(size_t at);
  uint64_t TouchOf(size_t at) const { return pool_->record(heap_[at]).touched; }

  CellPool* const pool_;
  // The leaf position of a record beside the heap is its place in `beside_`. The position of a
  // record in the heap is its place there plus kBeside.
  CellId beside_[kBeside] = {kNoCell, kNoCell, kNoCell, kNoCell};
  uint32_t next_ = 0;  // If `beside_` is full, the record in this place goes into the heap.
  std::vector<CellId> heap_;
};

}  // namespace baton
