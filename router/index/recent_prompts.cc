#include "router/index/recent_prompts.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace baton {
namespace {

// Points, and the buckets that lead to them, get 1 / kPointShare of the memory.
constexpr size_t kPointShare = 4;
// Bytes of an entry without its names. std::deque needs a little more than the size of its
// elements.
constexpr size_t kEntryBytes = 56;
// Bytes of an empty std::deque.
constexpr size_t kEmptyDequeBytes = 600;
// Bytes that an std::vector in a std::shared_ptr takes for itself and in the allocator.
constexpr size_t kVectorBytes = 64;

size_t BytesOf(const std::vector<BlockName>& prompt) {
  return prompt.size() * sizeof(BlockName) + kVectorBytes;
}

bool Equal(const std::vector<BlockName>& a, const std::vector<BlockName>& b) {
  return a.size() == b.size() && a.back() == b.back();
}

// Returns how many leading names two prompts share, which are at least `shared`.
size_t SharedNames(absl::Span<const BlockName> a, absl::Span<const BlockName> b, size_t shared) {
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

size_t MaxPoints(size_t max_bytes, size_t bytes_per_point) {
  return std::max(max_bytes, RecentPrompts::kMinBytes) / kPointShare / bytes_per_point;
}

}  // namespace

RecentPrompts::RecentPrompts(size_t max_bytes, uint64_t hash_key)
    : hash_(hash_key),
      buckets_(MaxPoints(max_bytes, sizeof(Point) + sizeof(PointId)), kNone),
      fixed_bytes_(sizeof(RecentPrompts) + kEmptyDequeBytes +
                   buckets_.size() * (sizeof(Point) + sizeof(PointId))),
      max_used_bytes_(std::max(max_bytes, kMinBytes) - fixed_bytes_) {
  points_.reserve(buckets_.size());
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

void RecentPrompts::Note(WorkerKey worker, Prompt prompt, absl::Time until) {
  if (prompt == nullptr || prompt->empty()) return;
  size_t names_bytes = BytesOf(*prompt);
  if (kEntryBytes + names_bytes > max_used_bytes_) {
    ++dropped_;
    return;
  }
  if (!entries_.empty()) until = std::max(until, entries_.back().until);
  Entry* equal = nullptr;  // The latest one.
  if (const Point* point = FindPoint((*prompt)[std::bit_floor(prompt->size()) - 1])) {
    for (uint32_t i = 0; i < point->count; ++i) {
      Entry& entry = At(point->entries[i]);
      if (!Equal(*entry.prompt, *prompt)) continue;
      if (entry.worker == worker) return;
      equal = &entry;
    }
  }
  if (equal != nullptr) {
    // Both entries keep the same names. The new one ends last, so it counts their bytes.
    prompt = equal->prompt;
    names_bytes = std::exchange(equal->names_bytes, 0);
    used_bytes_ -= names_bytes;
  }
  const size_t bytes = kEntryBytes + names_bytes;
  const size_t points = std::bit_width(prompt->size());  // At most so many are new.
  while (used_bytes_ + bytes > max_used_bytes_ || points_used_ + points > buckets_.size()) {
    EndOldest();
    ++dropped_;
  }
  const EntryNumber number = oldest_ + static_cast<EntryNumber>(entries_.size());
  for (size_t depth = 1; depth <= prompt->size(); depth *= 2) List((*prompt)[depth - 1], number);
  entries_.push_back({worker, std::move(prompt), until, names_bytes});
  used_bytes_ += bytes;
}

void RecentPrompts::EndOldest() {
  const Entry& entry = entries_.front();
  const std::vector<BlockName>& prompt = *entry.prompt;
  // Nobody has used this memory for a while, so all of it is loaded at the same time.
  for (size_t depth = 1; depth <= prompt.size(); depth *= 2) {
    __builtin_prefetch(&prompt[depth - 1]);
  }
  for (size_t depth = 1; depth <= prompt.size(); depth *= 2) {
    __builtin_prefetch(&buckets_[hash_.BucketOf(prompt[depth - 1], buckets_.size())]);
  }
  for (size_t depth = 1; depth <= prompt.size(); depth *= 2) Unlist(prompt[depth - 1]);
  used_bytes_ -= kEntryBytes + entry.names_bytes;
  entries_.pop_front();
  ++oldest_;
}

void RecentPrompts::Expire(absl::Time now) {
  while (!entries_.empty() && entries_.front().until <= now) EndOldest();
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
      const std::vector<BlockName>& names = *entry.prompt;
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
