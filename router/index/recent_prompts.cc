#include "router/index/recent_prompts.h"

#include <algorithm>
#include <bit>

namespace baton {
namespace {

// The entries, with the points and the buckets that lead to them, get 1 / kEntryShare of the
// memory. The names get the rest.
constexpr size_t kEntryShare = 4;

// Returns how many leading names two prompts share, which are at least `shared`.
template <typename Names>
size_t SharedNames(const Names& a, absl::Span<const BlockName> b, size_t shared) {
  size_t max = std::min(a.size(), b.size());
  while (shared < max) {
    const size_t middle = shared + (max - shared + 1) / 2;
    if (a[middle - 1] == b[middle - 1]) {
      shared = middle;
    } else {
      max = middle - 1;
    }
  }
  return shared;
}

}  // namespace

RecentPrompts::RecentPrompts(size_t max_bytes, uint64_t hash_key) : hash_(hash_key) {
  max_bytes = std::max(max_bytes, kMinBytes);
  const size_t entries =
      max_bytes / kEntryShare / (sizeof(Entry) + sizeof(Point) + sizeof(PointId));
  buckets_.assign(entries, kNone);
  points_.reserve(entries);
  entries_.resize(entries);
  ring_.resize((max_bytes - bytes()) / sizeof(BlockName));
}

// --- Lists of entries under names ---

const RecentPrompts::Point* RecentPrompts::FindPoint(const BlockName& name) const {
  PointId id = buckets_[hash_.BucketOf(name, buckets_.size())];
  while (id != kNone && points_[id].name != name) id = points_[id].next;
  return id == kNone ? nullptr : &points_[id];
}

void RecentPrompts::List(const BlockName& name, EntryNumber number) {
  PointId& first = buckets_[hash_.BucketOf(name, buckets_.size())];
  PointId id = first;
  while (id != kNone && points_[id].name != name) id = points_[id].next;
  if (id == kNone) {
    id = free_;
    if (id == kNone) {
      id = static_cast<PointId>(points_.size());
      points_.emplace_back();
    } else {
      free_ = points_[id].next;
    }
    points_[id] = {.name = name, .next = first};
    first = id;
    ++points_used_;
  }
  Point& point = points_[id];
  if (point.count == kPerName) {
    std::copy(point.entries + 1, point.entries + kPerName, point.entries);
    --point.count;
  }
  point.entries[point.count++] = number;
}

void RecentPrompts::Unlist(const BlockName& name) {
  PointId* link = &buckets_[hash_.BucketOf(name, buckets_.size())];
  while (*link != kNone && points_[*link].name != name) link = &points_[*link].next;
  if (*link == kNone) return;
  const PointId id = *link;
  Point& point = points_[id];
  if (point.entries[0] != oldest_) return;
  std::copy(point.entries + 1, point.entries + point.count, point.entries);
  if (--point.count > 0) return;
  *link = point.next;
  point.next = free_;
  free_ = id;
  --points_used_;
}

// --- Entries ---

void RecentPrompts::Note(WorkerKey worker, absl::Span<const BlockName> prompt, absl::Time until) {
  if (prompt.empty()) return;
  const size_t points = std::bit_width(prompt.size());  // At most so many are new.
  if (prompt.size() > ring_.size() || points > buckets_.size()) {
    ++dropped_;
    return;
  }
  if (const Point* point = FindPoint(prompt[std::bit_floor(prompt.size()) - 1])) {
    for (uint32_t i = 0; i < point->count; ++i) {
      const Entry& entry = At(point->entries[i]);
      if (entry.worker == worker && entry.count == prompt.size() &&
          NamesOf(entry)[prompt.size() - 1] == prompt.back()) {
        return;
      }
    }
  }
  if (entries() > 0) until = std::max(until, At(end_ - 1).until);
  while (ring_used_ + prompt.size() > ring_.size() || points_used_ + points > buckets_.size() ||
         entries() == entries_.size()) {
    EndOldest();
    ++dropped_;
  }
  for (size_t depth = 1; depth <= prompt.size(); depth *= 2) List(prompt[depth - 1], end_);
  entries_[end_ % entries_.size()] = {worker, until, static_cast<uint32_t>(ring_end_),
                                      static_cast<uint32_t>(prompt.size())};
  ++end_;
  const size_t before_wrap = std::min(prompt.size(), ring_.size() - ring_end_);
  std::copy_n(prompt.begin(), before_wrap, &ring_[ring_end_]);
  std::copy(prompt.begin() + before_wrap, prompt.end(), ring_.begin());
  ring_end_ = (ring_end_ + prompt.size()) % ring_.size();
  ring_used_ += prompt.size();
}

void RecentPrompts::EndOldest() {
  const Entry& entry = At(oldest_);
  const Names names = NamesOf(entry);
  for (size_t depth = 1; depth <= names.size(); depth *= 2) Unlist(names[depth - 1]);
  ring_used_ -= names.size();
  ++oldest_;
}

void RecentPrompts::Expire(absl::Time now) {
  while (entries() > 0 && At(oldest_).until <= now) EndOldest();
}

void RecentPrompts::Find(absl::Span<const BlockName> prompt, std::vector<HeldBlocks>* out) const {
  out->clear();
  // A point lists at least the latest entry with its name. The earlier names of that entry have
  // points too. So if a name has no point, the later names have none either.
  const Point* points[64];
  int count = 0;
  for (size_t depth = 1; depth <= prompt.size(); depth *= 2) {
    const Point* point = FindPoint(prompt[depth - 1]);
    if (point == nullptr) break;
    points[count++] = point;
  }
  while (count-- > 0) {
    const Point& point = *points[count];
    for (uint32_t i = 0; i < point.count; ++i) {
      const Entry& entry = At(point.entries[i]);
      const Names names = NamesOf(entry);
      auto held = std::find_if(out->begin(), out->end(),
                               [&](const HeldBlocks& one) { return one.worker == entry.worker; });
      size_t shared = size_t{1} << count;
      if (held == out->end()) {
        held = out->insert(held, {entry.worker, 0});
      } else {
        // The entry matters only if it shares one more name than the worker's best one.
        shared = static_cast<size_t>(held->blocks) + 1;
        if (shared > std::min(names.size(), prompt.size())) continue;
        if (names[shared - 1] != prompt[shared - 1]) continue;
      }
      held->blocks = static_cast<int>(SharedNames(names, prompt, shared));
    }
  }
}

}  // namespace baton
