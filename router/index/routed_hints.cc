#include "router/index/routed_hints.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {

const size_t RoutedHints::kBytesPerHint = sizeof(Node) + sizeof(NodeId);

RoutedHints::RoutedHints(size_t max) : first_(max, kNone) { nodes_.reserve(max); }

size_t RoutedHints::BucketOf(CellId record, WorkerSlot slot) const {
  const uint64_t key = uint64_t{record} << 16 | slot;
  return ((key * 0x9e3779b97f4a7c15) >> 32) * first_.size() >> 32;
}

RoutedHints::NodeId RoutedHints::Find(CellId record, WorkerSlot slot) const {
  for (NodeId id = first_[BucketOf(record, slot)]; id != kNone; id = nodes_[id].next) {
    const Hint& hint = nodes_[id].hint;
    if (hint.record == record && hint.slot == slot) return id;
  }
  return kNone;
}

void RoutedHints::Append(NodeId node) {
  nodes_[node].older = newest_;
  nodes_[node].newer = kNone;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = node;
  newest_ = node;
}

void RoutedHints::Unlink(NodeId node) {
  const NodeId older = nodes_[node].older, newer = nodes_[node].newer;
  (older == kNone ? oldest_ : nodes_[older].newer) = newer;
  (newer == kNone ? newest_ : nodes_[newer].older) = older;
}

void RoutedHints::Set(CellId record, WorkerSlot slot, absl::Time until) {
  if (newest_ != kNone) until = std::max(until, nodes_[newest_].hint.until);
  NodeId node = Find(record, slot);
  if (node != kNone) {
    Unlink(node);
    nodes_[node].hint.until = until;
    Append(node);
    return;
  }
  BATON_CHECK(!full()) << size_ << " hints";
  node = free_;
  if (node == kNone) {
    node = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
  } else {
    free_ = nodes_[node].next;
  }
  NodeId& first = first_[BucketOf(record, slot)];
  nodes_[node].hint = {until, record, slot};
  nodes_[node].next = first;
  first = node;
  Append(node);
  ++size_;
}

bool RoutedHints::Remove(CellId record, WorkerSlot slot) {
  NodeId* link = &first_[BucketOf(record, slot)];
  while (*link != kNone &&
         (nodes_[*link].hint.record != record || nodes_[*link].hint.slot != slot)) {
    link = &nodes_[*link].next;
  }
  if (*link == kNone) return false;
  const NodeId node = *link;
  *link = nodes_[node].next;
  Unlink(node);
  nodes_[node].next = free_;
  free_ = node;
  --size_;
  return true;
}

}  // namespace baton
