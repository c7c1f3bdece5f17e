#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "router/index/cell_pool.h"

namespace baton {

// Lists the holders that are hints: a prompt was routed to a worker, so the worker will hold the
// prompt's names soon, but has not said so yet. Finds a hint by its record and its worker, and the
// hint that ends first. All memory is allocated at the start. One thread only.
class RoutedHints {
 public:
  struct Hint {
    absl::Time until;
    CellId record = kNoCell;
    WorkerSlot slot = 0;
  };
  // Bytes of memory per hint that can be listed.
  static const size_t kBytesPerHint;

  explicit RoutedHints(size_t max);

  size_t size() const { return size_; }
  bool full() const { return size_ == first_.size(); }
  bool Has(CellId record, WorkerSlot slot) const { return Find(record, slot) != kNone; }
  // Returns the hint that ends first; null if there is none.
  const Hint* oldest() const { return oldest_ == kNone ? nullptr : &nodes_[oldest_].hint; }
  // Lists a hint, or sets a new end for one that is listed. The order of the ends is the order of
  // the calls: if `until` is before the end of a listed hint, the hint ends with that one. Aborts
  // if the hint is not listed and the list is full.
  void Set(CellId record, WorkerSlot slot, absl::Time until);
  // Removes a hint. Returns false if it is not listed.
  bool Remove(CellId record, WorkerSlot slot);

 private:
  using NodeId = uint32_t;
  static constexpr NodeId kNone = ~NodeId{0};
  struct Node {
    Hint hint;
    NodeId next = kNone;  // Next node of the same bucket, or next free node.
    NodeId older = kNone, newer = kNone;
  };
  size_t BucketOf(CellId record, WorkerSlot slot) const;
  NodeId Find(CellId record, WorkerSlot slot) const;
  void Append(NodeId node);
  void Unlink(NodeId node);

  std::vector<NodeId> first_;  // First node of each bucket of the hash table.
  std::vector<Node> nodes_;
  NodeId free_ = kNone;
  NodeId oldest_ = kNone, newest_ = kNone;
  size_t size_ = 0;
};

}  // namespace baton
