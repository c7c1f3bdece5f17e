#pragma once

#include <cstddef>
#include <vector>

#include "router/index/cell_pool.h"

namespace baton {

// Orders records by their last touch, oldest first, as a binary heap. PrefixIndex keeps the leaves
// in it: the names that no other name has as its parent. Keeps each record's position in
// PrefixRecord::leaf_position. One thread only.
class LeafHeap {
 public:
  // Allocates memory for `max` records. `pool` outlives the object.
  LeafHeap(size_t max, CellPool* pool) : pool_(pool) { heap_.reserve(max); }

  bool empty() const { return heap_.empty(); }
  CellId oldest() const { return heap_.front(); }
  // Adds a record that is not in the heap.
  void Push(CellId record);
  // Removes a record that is in the heap.
  void Remove(CellId record);
  // Must follow when a record in the heap was touched, which makes it younger.
  void Touched(CellId record) { Sink(pool_->record(record).leaf_position); }

 private:
  void Place(CellId record, size_t at);
  void Rise(size_t at);
  void Sink(size_t at);
  uint64_t TouchOf(size_t at) const { return pool_->record(heap_[at]).touched; }

  CellPool* const pool_;
  std::vector<CellId> heap_;
};

}  // namespace baton
