#include "router/index/leaf_heap.h"

namespace baton {

void LeafHeap::Place(CellId record, size_t at) {
  heap_[at] = record;
  pool_->record(record).leaf_position = static_cast<uint32_t>(at) + kBeside;
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

CellId LeafHeap::oldest() const {
  CellId oldest = heap_.empty() ? kNoCell : heap_.front();
  for (const CellId record : beside_) {
    if (record == kNoCell) continue;
    const bool is_older =
        oldest == kNoCell || pool_->record(record).touched < pool_->record(oldest).touched;
    if (is_older) oldest = record;
  }
  return oldest;
}

void LeafHeap::Push(CellId record) {
  uint32_t place = 0;
  while (place < kBeside && beside_[place] != kNoCell) ++place;
  if (place == kBeside) {
    place = next_;
    next_ = (next_ + 1) % kBeside;
    heap_.push_back(beside_[place]);
    Rise(heap_.size() - 1);
  }
  beside_[place] = record;
  pool_->record(record).leaf_position = place;
}

void LeafHeap::Remove(CellId record) {
  const uint32_t position = pool_->record(record).leaf_position;
  if (position < kBeside) {
    beside_[position] = kNoCell;
    return;
  }
  const size_t at = position - kBeside;
  const CellId last = heap_.back();
  heap_.pop_back();
  if (last == record) return;
  Place(last, at);
  Rise(at);
  Sink(pool_->record(last).leaf_position - kBeside);
}

}  // namespace baton
