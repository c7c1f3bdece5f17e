#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/block_name.h"
#include "common/base/name_hash.h"
#include "router/index/cell_pool.h"
#include "router/index/held_blocks.h"
#include "router/index/holder_sets.h"
#include "router/index/leaf_heap.h"
#include "router/index/worker_key.h"
#include "router/index/worker_slots.h"

namespace baton {

// Knows which workers hold the KV of which blocks, by the blocks' names. Answers how many leading
// blocks of a prompt each worker holds. A wrong answer costs only time: a worker then computes a
// block that another worker holds. One thread, the router core's loop; reads no clock. The same
// calls give the same answers.
//
// Guarantees
//   - bytes() never exceeds Options::max_bytes. When memory is short, the leaf that was touched
//     longest ago is evicted. A leaf is a held name that is the parent of no held name. A name is
//     touched when it is added, and when an answer counts it.
//   - No call takes longer because the index is large: nothing is copied to grow. A call that takes
//     several names costs less than 1 us per name in the mean, so a caller can split long lists.
//   - RemoveWorker() takes effect at once. Sweep() frees the memory later, in parts.
//
// A call for a worker that is unknown makes it known, up to Options::max_workers. The caller has to
// call RemoveWorker() when a worker is gone.
class PrefixIndex {
 public:
  struct Options {
    size_t max_bytes = size_t{256} << 20;  // At least MinBytes().
    // At most 65,535. A removed worker counts until Sweep() has removed its names.
    size_t max_workers = 4096;
    // Secret number that decides where names lie in the hash table, see NameHash. It also decides
    // in which order Sweep() removes names, and nothing else.
    uint64_t hash_key = 0;
  };
  // Returns the bytes that an index of a few dozen names needs.
  static size_t MinBytes(size_t max_workers);

  explicit PrefixIndex(const Options& options);

  // Sets `out` to the workers that hold at least the first block of the prompt, unordered. A worker
  // holds n leading blocks if it holds each of the first n names. Looks up at most one name more
  // than the largest number of leading blocks that it returns.
  void LeadingBlocks(absl::Span<const BlockName> prompt, std::vector<HeldBlocks>* out);

  // A name that a worker has begun or ceased to hold.
  struct Change {
    bool added = true;
    BlockName name;
    BlockName parent;  // Read only if `added`. All 0: the name is the first of a prompt.
    bool operator==(const Change&) const = default;
  };
  // Takes changes at one worker, in their order.
  void Apply(WorkerKey worker, absl::Span<const Change> changes);
  // Notes that the worker holds `name`. The parent may be unknown; it may also come later. If the
  // index has a parent for the name already, that one stays. The parent is not evicted to make room
  // for the name. If the name finds no room, or there are too many workers, the index drops the
  // change and counts it.
  void Add(WorkerKey worker, const BlockName& parent, const BlockName& name);
  // Notes that the worker does not hold `name`. Does nothing if the index does not list the worker
  // as a holder of the name.
  void Remove(WorkerKey worker, const BlockName& name);
  // Notes that the worker holds nothing any more. It may come back at once.
  void RemoveWorker(WorkerKey worker);

  // Removes names of removed workers. Costs less than 1 us per unit of `budget`. Returns true if
  // there is more to do.
  bool Sweep(int budget);

  // Bytes of memory in use: all that the index has allocated.
  size_t bytes() const { return fixed_bytes_ + pool_.bytes(); }
  size_t names() const { return names_; }  // Names with at least one holder.
  size_t workers() const { return slots_.workers(); }
  // Events since the start: names evicted to make room; changes that were dropped.
  uint64_t evictions() const { return evictions_; }
  uint64_t dropped() const { return dropped_; }

 private:
  struct Sizes {
    size_t chunks = 0, fixed_bytes = 0;
  };
  static Sizes SizesFor(const Options& options);
  PrefixIndex(const Options& options, const Sizes& sizes);

  size_t BucketOf(const BlockName& name) const { return hash_.BucketOf(name, buckets_.size()); }
  // Sets `buckets` to the buckets of `count` names, and has the processor load the memory that the
  // look-ups of these names read. `name_of` returns the name with a number, from 0.
  template <typename NameOf>
  void LoadAhead(size_t count, NameOf name_of, size_t* buckets) const;
  CellId Find(const BlockName& name, size_t bucket) const;
  CellId NewRecord(const BlockName& name, size_t bucket);
  void EraseRecord(CellId id);
  void Touch(CellId id);

  // AddChild() adds one to the number of children of a record. It is also called without a new
  // child, because a record with children is not evicted. DropChild() subtracts one, and erases the
  // record if it has neither holders nor children left.
  void AddChild(CellId id);
  void DropChild(CellId id);
  void AddHolder(CellId id, WorkerSlot slot);
  // Returns false if the record is gone, because the slot was its last holder.
  bool RemoveHolder(CellId id, WorkerSlot slot);
  // Takes a record without holders out of the tree of names. Erases it, and returns false, if no
  // name has it as its parent.
  bool LeaveTree(CellId id);
  // Adds a holder of the name in `added`. `above` is the record of the parent, or kNoCell if the
  // caller does not know it. Returns the record of the name; kNoCell if the change was dropped.
  CellId Insert(WorkerSlot slot, const Change& added, size_t bucket, CellId above);
  void RemoveAdded(WorkerSlot slot, const BlockName& name, size_t bucket);
  // Evicts leaves until `cells` cells are available. Returns false if that does not suffice.
  bool MakeRoom(size_t cells);
  void Evict(CellId leaf);
  // Has the processor load the memory that an eviction of this record reads.
  void LoadForEviction(CellId id) const;
  // Removes the dead holders of the records in one bucket. Returns the units of work done.
  int SweepBucket(size_t bucket);

  const NameHash hash_;
  const size_t fixed_bytes_;
  CellPool pool_;
  HolderSets holders_;
  LeafHeap leaves_;
  WorkerSlots slots_;
  std::vector<CellId> buckets_;              // First record of each bucket.
  std::vector<uint64_t> candidates_, both_;  // Bitmaps of slots, for LeadingBlocks().
  size_t swept_ = 0;                         // Next bucket for Sweep().
  uint64_t touches_ = 0;
  size_t names_ = 0;
  uint64_t evictions_ = 0, dropped_ = 0;
};

}  // namespace baton
