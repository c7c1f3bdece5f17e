#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/block_name.h"
#include "common/base/name_hash.h"
#include "router/index/held_blocks.h"
#include "router/index/worker_key.h"

namespace baton {

// Knows which prompts were sent to which workers in the last seconds. Such a worker will hold the
// KV of the prompt's blocks soon, but has not said so yet. Answers how many leading blocks of a new
// prompt each worker got. One thread, the router core's loop; reads no clock.
//
// A prompt is one entry, however many blocks it has. The names of a prompt's blocks are a hash
// chain: each name decides all names before it. So two prompts share their first n blocks exactly
// if their n-th names are equal. An entry is listed under the 1st, 2nd, 4th, 8th ... name of its
// prompt, and a binary search finds how many names it shares with another prompt.
//
// Guarantees
//   - All memory is allocated by the constructor: bytes(), which is at most its `max_bytes`, if
//     that is at least kMinBytes. When memory is short, the oldest entries end early.
//   - Find() takes a time that grows with the logarithm of the number of blocks. Note() also copies
//     the names.
class RecentPrompts {
 public:
  // Only this many entries are listed under a name: the latest ones.
  static constexpr size_t kPerName = 8;
  static constexpr size_t kMinBytes = 16384;

  // `hash_key` is a secret number, see NameHash.
  RecentPrompts(size_t max_bytes, uint64_t hash_key);

  // Notes that a prompt was sent to a worker: adds an entry, which ends when Expire() is called at
  // `until` or later. `prompt` has the names of its blocks, in order. `until` should not decrease
  // from call to call, because an entry does not end before an older one. Adds nothing if the
  // prompt is empty, or if an entry of this worker with an equal prompt is among the latest ones
  // with this beginning. A prompt that is larger than the memory for all entries is dropped.
  void Note(WorkerKey worker, absl::Span<const BlockName> prompt, absl::Time until);
  // Sets `out` to the workers that got at least the first block of the prompt, in any order; for
  // each worker, to the largest number of leading blocks that one of its entries shares with the
  // prompt.
  void Find(absl::Span<const BlockName> prompt, std::vector<HeldBlocks>* out) const;
  // Ends the entries whose time has come.
  void Expire(absl::Time now);

  // Bytes of memory that are allocated.
  size_t bytes() const {
    return sizeof(*this) + ring_.size() * sizeof(BlockName) +
           entries_.size() * (sizeof(Entry) + sizeof(Point) + sizeof(PointId));
  }
  size_t entries() const { return end_ - oldest_; }
  // Entries that ended early to make room, and prompts that were larger than the memory.
  uint64_t dropped() const { return dropped_; }

 private:
  using PointId = uint32_t;
  using EntryNumber = uint64_t;  // Counts the entries since the start.
  static constexpr PointId kNone = ~PointId{0};

  struct Entry {
    WorkerKey worker = 0;
    absl::Time until;
    // The names of the prompt lie in the ring from `first` on, and may go on at its beginning.
    uint32_t first = 0, count = 0;
  };
  // The entries that are listed under a name.
  struct Point {
    BlockName name;
    PointId next = kNone;  // Next point of the same bucket, or next free point.
    uint32_t count = 0;
    EntryNumber entries[kPerName] = {};  // The first `count` are used; oldest first.
  };
  // The names of an entry's prompt.
  class Names {
   public:
    Names(const std::vector<BlockName>& ring, const Entry& entry) : ring_(ring), entry_(entry) {}
    size_t size() const { return entry_.count; }
    const BlockName& operator[](size_t i) const {
      const size_t place = entry_.first + i;
      return ring_[place < ring_.size() ? place : place - ring_.size()];
    }

   private:
    const std::vector<BlockName>& ring_;
    const Entry entry_;
  };

  const Entry& At(EntryNumber number) const { return entries_[number % entries_.size()]; }
  Names NamesOf(const Entry& entry) const { return Names(ring_, entry); }
  const Point* FindPoint(const BlockName& name) const;
  // Adds the newest entry to the list under a name.
  void List(const BlockName& name, EntryNumber number);
  // Removes the oldest entry from the list under a name, if it is still there.
  void Unlist(const BlockName& name);
  void EndOldest();

  const NameHash hash_;
  std::vector<PointId> buckets_;  // First point of each bucket of a hash table.
  std::vector<Point> points_;     // At most one per bucket.
  PointId free_ = kNone;
  size_t points_used_ = 0;
  std::vector<Entry> entries_;        // A ring: entry n is at n % size.
  EntryNumber oldest_ = 0, end_ = 0;  // The entries that there are: `oldest_` to `end_` - 1.
  std::vector<BlockName> ring_;       // Names of the entries, in the same order.
  size_t ring_used_ = 0;              // Names that belong to an entry.
  size_t ring_end_ = 0;               // The names of the next entry begin here.
  uint64_t dropped_ = 0;
};

}  // namespace baton
