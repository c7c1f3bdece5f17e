#include "router/index/leaf_heap.h"

namespace baton {

void LeafHeap::Place(CellId record, size_t at) {
  heap_[at] = record;
  pool_->record(record).leaf_position = static_cast<uint32_t>(at);
}

void LeafHeap::Rise(size_t at) {
  const CellId record = heap_[at];
  const uint64_t touched = TouchOf(at);
  while (at > 0 && touched < TouchOf((at - 1) / 2)) {
    Place(heap_[(at - 1) / 2], at);
    at = (at - 1) / 2;
  }
  Place(record, at);
}

void LeafHeap::Sink(size_t at) {
  const CellId record = heap_[at];
  const uint64_t touched = TouchOf(at);
  for (size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && TouchOf(child + 1) < TouchOf(child)) ++child;
    if (touched <= TouchOf(child)) break;
    Place(heap_[child], at);
    at = child;
  }
  Place(record, at);
}

void LeafHeap::Push(CellId record) {
  heap_.push_back(record);
  Rise(heap_.size() - 1);
}

void LeafHeap::Remove(CellId record) {
  const size_t at = pool_->record(record).leaf_position;
  const CellId last = heap_.back();
  heap_.pop_back();
  if (last == record) return;
  Place(last, at);
  Rise(at);
  Sink(pool_->record(last).leaf_position);
}

}  // namespace baton
