#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "baton/v1/membership.pb.h"
#include "common/base/block_name.h"
#include "router/core/core_events.h"
#include "router/index/held_blocks.h"
#include "router/index/prefix_index.h"
#include "router/index/recent_prompts.h"

namespace baton {

struct CoreContext;

// Returns InvalidArgument, with the field and its size, for a worker's message that breaks the
// protocol. Any thread.
absl::Status CheckCacheChanges(const v1::CacheChanges& changes);

// Reads the changes of a message that CheckCacheChanges() has accepted, first what was removed and
// then what was added. A message has thousands of them, so they stay in the form in which they
// came, and are read when they are applied.
class CacheChangeReader {
 public:
  explicit CacheChangeReader(v1::CacheChanges message) : message_(std::move(message)) {}

  const v1::CacheChanges& message() const { return message_; }
  // Sets `out` to the next changes, at most `max`. There are none after the last one.
  void Read(size_t max, std::vector<PrefixIndex::Change>* out);
  // Returns true if there are changes that were not read.
  bool more() const;

 private:
  v1::CacheChanges message_;
  bool removals_read_ = false;
  int run_ = 0;        // the run of added names that is read
  size_t offset_ = 0;  // bytes of the removed names, or of the run's names, that were read
  BlockName parent_;   // parent of the next name of the run
};

// Knows which blocks the workers have in their prefix caches, from the changes that they send and
// from the prompts that were just sent to them. What it knows may be out of date: a worker that
// does not have a block computes it. Core's loop thread only.
//
// Takes at most kChangesPerTurn changes in one turn of the loop, so that a worker that tells all
// its blocks at once does not hold up the loop. The other changes wait. A stream is read on only
// when its last message was taken whole.
class WorkerCaches {
 public:
  static constexpr size_t kChangesPerTurn = 500;
  // The smallest value of the option prefix_index_bytes, except for 0.
  static size_t MinBytes();

  // Knows nothing for ever if the option prefix_index_bytes is 0. `core` outlives the object.
  explicit WorkerCaches(CoreContext* core);

  bool enabled() const { return index_.has_value(); }
  // Takes a message that came on the stream `attach` of the worker. Adds a ReportTaken when the
  // changes have been applied. Returns InvalidArgument if changes are missing before these ones;
  // the caller then has to close the stream.
  absl::Status Take(AttachKey attach, WorkerKey worker, v1::CacheChanges changes);
  // Forgets a worker that is gone. Find() may still return the worker, for as long as a prompt that
  // was sent to it counts.
  void Remove(WorkerKey worker);
  // Applies changes that wait. Call it once per turn, before workers are chosen.
  void RunOnce();
  // Time at which RunOnce has something to do. InfinitePast: now.
  absl::Time NextWake() const;

  // Returns the workers that have the first block of a prompt, ordered by key, and the number of
  // leading blocks that each has. Valid until the next call.
  absl::Span<const HeldBlocks> Find(absl::Span<const BlockName> prompt);
  // Notes that a prompt was sent to a worker that keeps blocks. The worker counts as having them
  // for the time of the option routed_for, and longer if it says so itself.
  void NoteRouted(WorkerKey worker, absl::Span<const BlockName> prompt);

 private:
  struct Stream {
    AttachKey attach = 0;
    uint64_t last = 0;  // number of the last change that was taken
  };
  struct Waiting {
    AttachKey attach;
    WorkerKey worker;
    CacheChangeReader changes;
    absl::Time arrived;
    bool begun = false;  // some of the changes were applied
  };

  CoreContext* const core_;
  // Both are there if the object is enabled.
  std::optional<PrefixIndex> index_;
  std::optional<RecentPrompts> recent_;
  std::map<WorkerKey, Stream> streams_;
  std::deque<Waiting> waiting_;
  bool sweeps_ = false;  // the index has more to sweep
  std::vector<PrefixIndex::Change> next_;  // the changes that are being applied
  std::vector<HeldBlocks> found_, found_recent_;
  uint64_t evictions_counted_ = 0, dropped_counted_ = 0;
};

}  // namespace baton
