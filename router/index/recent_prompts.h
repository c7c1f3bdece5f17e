#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
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
//   - bytes() never exceeds the `max_bytes` of the constructor, if that is at least kMinBytes. When
//     memory is short, the oldest entries end early.
//   - Note() and Find() take a time that grows with the logarithm of the number of blocks.
class RecentPrompts {
 public:
  // Names of the blocks of a prompt, in order.
  using Prompt = std::shared_ptr<const std::vector<BlockName>>;
  // Only this many entries are listed under a name: the latest ones.
  static constexpr size_t kPerName = 8;
  static constexpr size_t kMinBytes = 16384;

  // `hash_key` is a secret number, see NameHash.
  RecentPrompts(size_t max_bytes, uint64_t hash_key);

  // Notes that a prompt was sent to a worker: adds an entry, which ends when Expire() is called at
  // `until` or later. `until` should not decrease from call to call, because an entry does not end
  // before an older one. Adds nothing if the prompt is empty, or if an entry of this worker with an
  // equal prompt is among the latest ones with this beginning. A prompt that is larger than the
  // memory for all entries is dropped.
  void Note(WorkerKey worker, Prompt prompt, absl::Time until);
  // Sets `out` to the workers that got at least the first block of the prompt, in any order; for
  // each worker, to the largest number of leading blocks that one of its entries shares with the
  // prompt.
  void Find(absl::Span<const BlockName> prompt, std::vector<HeldBlocks>* out) const;
  // Ends the entries whose time has come.
  void Expire(absl::Time now);

  // Bytes of memory in use. The names count as if nobody else kept the prompts.
  size_t bytes() const { return fixed_bytes_ + used_bytes_; }
  size_t entries() const { return entries_.size(); }
  // Entries that ended early to make room, and prompts that were larger than the memory.
  uint64_t dropped() const { return dropped_; }

 private:
  using PointId = uint32_t;
  using EntryNumber = uint32_t;  // Counts the entries since the start. Wraps around.
  static constexpr PointId kNone = ~PointId{0};

  struct Entry {
    WorkerKey worker = 0;
    Prompt prompt;
    absl::Time until;
    // Bytes that are counted for the names. 0 if a later entry with the same prompt counts them.
    size_t names_bytes = 0;
  };
  // The entries that are listed under a name.
  struct Point {
    BlockName name;
    PointId next = kNone;  // Next point of the same bucket, or next free point.
    uint32_t count = 0;
    EntryNumber entries[kPerName] = {};  // The first `count` are used; oldest first.
  };

  const Entry& At(EntryNumber number) const {
    return entries_[static_cast<EntryNumber>(number - oldest_)];
  }
  Entry& At(EntryNumber number) { return entries_[static_cast<EntryNumber>(number - oldest_)]; }
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
  const size_t fixed_bytes_;  // Memory that is allocated at the start.
  const size_t max_used_bytes_;
  size_t used_bytes_ = 0;      // Memory of the entries.
  std::deque<Entry> entries_;  // Oldest first.
  EntryNumber oldest_ = 0;     // Number of the first entry.
  uint64_t dropped_ = 0;
};

}  // namespace baton
