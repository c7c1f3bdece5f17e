#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/base/block_name.h"
#include "common/base/mutex.h"

namespace baton {

// Names that the blocks of a prefix cache got and lost: the changes with the numbers `after` + 1 to
// `last`. A name that was added and removed again within these numbers may be left out. A reader
// that knows the names as of `after` takes `removed` first and then `added`, and so knows the names
// as of `last`.
struct NameChanges {
  struct Addition {
    BlockName name;
    BlockName parent;  // name of the block before it; all 0 for the first block of a sequence
    bool operator==(const Addition&) const = default;
  };
  // 0: all earlier knowledge is void, because the cache has no names but those that follow.
  uint64_t after = 0;
  uint64_t last = 0;
  std::vector<BlockName> removed;
  std::vector<Addition> added;  // a parent comes before its children
  // Time of the oldest change, or a little later. InfiniteFuture while a reader is told all names.
  absl::Time since;
  bool more = false;  // true if more changes follow
};

// Numbers the changes of a prefix cache, and tells them to readers. The log keeps nothing for each
// reader. It keeps the names that the cache has now, in the order in which they were added, and the
// last removals. A reader that has missed older removals gets all names anew.
//
// The cache's thread adds and removes names. Any thread may read.
class NameLog {
 public:
  // Keeps the last `max_removals` removals, at least 1.
  explicit NameLog(size_t max_removals) : max_removals_(max_removals) {}

  // Sets the function that is called, on the cache's thread, at the first change after a call of
  // Next(). It must not wait for long. Call this before the first change.
  void set_on_change(std::function<void()> on_change) { on_change_ = std::move(on_change); }
  // Sets the time of the changes that follow.
  void BeginTurn(absl::Time now);
  // Notes that a block has got a name. Returns the number of the change.
  uint64_t Add(const BlockName& name, const BlockName& parent);
  // Notes that the name that was added by the change `number` is gone.
  void Remove(uint64_t number, const BlockName& name);

  // Position of a reader. A new reader knows nothing.
  struct Cursor {
    uint64_t last = 0;   // number of the last change that it knows
    uint64_t begun = 0;  // number of the last change when it was told all names
  };
  // Any thread. Returns the changes that follow those that the reader knows, at most `max` of them,
  // and counts them as known; `max` is at least 1. Returns nothing if there are none. The changes
  // begin anew (`after` is 0) if the reader has missed removals that are no longer kept.
  std::optional<NameChanges> Next(Cursor* reader, size_t max);
  // Any thread. Returns the number of the last change.
  uint64_t last() const;

 private:
  // Notes a change, and returns its number. Sets `*tell` if on_change_ must be called.
  uint64_t Count(bool* tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the time of change `number`, or a later one if the time is no longer known.
  absl::Time TimeOf(uint64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Removal {
    uint64_t number;
    BlockName name;
  };
  // The first change of a turn, and the turn's time.
  struct Turn {
    uint64_t first;
    absl::Time time;
  };
  static constexpr size_t kMaxTurns = 4096;

  const size_t max_removals_;
  std::function<void()> on_change_;
  mutable Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  // The names that the cache has now, by the number of the change that added them.
  absl::btree_map<uint64_t, NameChanges::Addition> names_ ABSL_GUARDED_BY(mutex_);
  std::deque<Removal> removals_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last removal that is not known
  std::deque<Turn> turns_ ABSL_GUARDED_BY(mutex_);
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // on_change_ was called since the last Next()
};

}  // namespace baton
