#include "router/index/prefix_index.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"

namespace baton {
namespace {

// Bytes that are allocated at the start for each chunk of the pool: the fixed bytes of CellPool,
// and for each cell a bucket of the hash table and a place in the heap of leaves.
constexpr size_t kFixedBytesPerChunk =
    CellPool::kFixedBytesPerChunk + 2 * sizeof(CellId) * CellPool::kChunkCells;
// Buckets that fill a line of the processor's cache. Sweep() counts a line without dead holders as
// one unit of work.
constexpr size_t kLineBuckets = 64 / sizeof(CellId);
// Number of names that are looked up together. The memory that their look-ups read is loaded at the
// same time, because the processor waits longer for memory than it works.
constexpr size_t kAhead = 16;

}  // namespace

PrefixIndex::Sizes PrefixIndex::SizesFor(const Options& options) {
  const size_t words = (options.max_workers + 63) / 64;
  const size_t workers = sizeof(PrefixIndex) + options.max_workers * WorkerSlots::kBytesPerSlot +
                         4 * words * sizeof(uint64_t);
  const size_t rest = options.max_bytes - std::min(workers, options.max_bytes);
  Sizes sizes;
  sizes.chunks = std::min(rest / (CellPool::kChunkBytes + kFixedBytesPerChunk),
                          kNoCell / CellPool::kChunkCells);
  sizes.fixed_bytes = workers + sizes.chunks * kFixedBytesPerChunk;
  return sizes;
}

size_t PrefixIndex::MinBytes(size_t max_workers) {
  return SizesFor({.max_bytes = 0, .max_workers = max_workers}).fixed_bytes +
         CellPool::kChunkBytes + kFixedBytesPerChunk;
}

PrefixIndex::PrefixIndex(const Options& options) : PrefixIndex(options, SizesFor(options)) {}

PrefixIndex::PrefixIndex(const Options& options, const Sizes& sizes)
    : hash_(options.hash_key),
      fixed_bytes_(sizes.fixed_bytes),
      pool_(sizes.chunks),
      holders_(&pool_),
      leaves_(sizes.chunks * CellPool::kChunkCells, &pool_),
      slots_(options.max_workers),
      buckets_(sizes.chunks * CellPool::kChunkCells, kNoCell),
      candidates_((options.max_workers + 63) / 64),
      both_(candidates_.size()) {
  BATON_CHECK(sizes.chunks > 0) << options.max_bytes << " bytes; the index needs at least "
                                << MinBytes(options.max_workers);
}

// --- The hash table of records ---

template <typename NameOf>
void PrefixIndex::LoadAhead(size_t count, NameOf name_of, size_t* buckets) const {
  for (size_t i = 0; i < count; ++i) {
    buckets[i] = BucketOf(name_of(i));
    __builtin_prefetch(&buckets_[buckets[i]]);
  }
  for (size_t i = 0; i < count; ++i) {
    const CellId first = buckets_[buckets[i]];
    if (first != kNoCell) __builtin_prefetch(&pool_.record(first));
  }
}

CellId PrefixIndex::Find(const BlockName& name, size_t bucket) const {
  CellId id = buckets_[bucket];
  while (id != kNoCell && pool_.record(id).name != name) id = pool_.record(id).next;
  return id;
}

CellId PrefixIndex::NewRecord(const BlockName& name, size_t bucket) {
  CellId& first = buckets_[bucket];
  const CellId id = pool_.Take();
  pool_.record(id) = PrefixRecord{.name = name, .touched = ++touches_, .next = first};
  first = id;
  return id;
}

void PrefixIndex::EraseRecord(CellId id) {
  CellId* link = &buckets_[BucketOf(pool_.record(id).name)];
  while (*link != id) link = &pool_.record(*link).next;
  *link = pool_.record(id).next;
  pool_.Give(id);
}

// --- The tree of names ---
//
// A record is in the heap of leaves exactly while it has holders and no children. A record without
// holders is there only because other names have it as their parent. It has no parent itself, so to
// erase it changes no other record.
//
// Names that a faulty worker reports as each other's ancestors have no leaf. They stay until their
// holders are removed. A name is a hash of its parent, so this can't happen with real names.

void PrefixIndex::Touch(CellId id) {
  PrefixRecord& record = pool_.record(id);
  record.touched = ++touches_;
  if (record.held() && record.children == 0) leaves_.Touched(id);
}

void PrefixIndex::AddChild(CellId id) {
  PrefixRecord& record = pool_.record(id);
  if (record.held() && record.children == 0) leaves_.Remove(id);
  ++record.children;
}

void PrefixIndex::DropChild(CellId id) {
  PrefixRecord& record = pool_.record(id);
  if (--record.children > 0) return;
  if (record.held()) {
    leaves_.Push(id);
  } else {
    EraseRecord(id);
  }
}

void PrefixIndex::AddHolder(CellId id, WorkerSlot slot) {
  PrefixRecord& record = pool_.record(id);
  const bool first = !record.held();
  holders_.Add(&record.holders, slot);
  slots_.AddName(slot);
  if (!first) return;
  ++names_;
  if (record.children == 0) leaves_.Push(id);
}

bool PrefixIndex::RemoveHolder(CellId id, WorkerSlot slot) {
  PrefixRecord& record = pool_.record(id);
  slots_.RemoveName(slot);
  // A leaf leaves the heap before it loses its last holder.
  if (record.holders.count == 1 && record.children == 0) leaves_.Remove(id);
  holders_.Remove(&record.holders, slot);
  return record.held() || LeaveTree(id);
}

bool PrefixIndex::LeaveTree(CellId id) {
  PrefixRecord& record = pool_.record(id);
  --names_;
  const CellId parent = std::exchange(record.parent, kNoCell);
  const bool stays = record.children > 0;
  if (!stays) EraseRecord(id);
  if (parent != kNoCell) DropChild(parent);
  return stays;
}

bool PrefixIndex::MakeRoom(size_t cells) {
  while (pool_.available() < cells) {
    const CellId leaf = leaves_.oldest();
    if (leaf == kNoCell) return false;
    Evict(leaf);
  }
  return true;
}

void PrefixIndex::LoadForEviction(CellId id) const {
  const PrefixRecord& record = pool_.record(id);
  __builtin_prefetch(&buckets_[BucketOf(record.name)]);
  if (record.parent != kNoCell) __builtin_prefetch(&pool_.record(record.parent));
}

void PrefixIndex::Evict(CellId leaf) {
  PrefixRecord& record = pool_.record(leaf);
  holders_.ForEach(record.holders, [&](WorkerSlot slot) { slots_.RemoveName(slot); });
  leaves_.Remove(leaf);
  holders_.Clear(&record.holders);
  // While memory is short, the parent is often evicted next.
  if (record.parent != kNoCell) LoadForEviction(record.parent);
  LeaveTree(leaf);
  ++evictions_;
}

// --- Look-ups and changes ---

void PrefixIndex::LeadingBlocks(absl::Span<const BlockName> prompt, std::vector<HeldBlocks>* out) {
  out->clear();
  const absl::Span<const uint64_t> live = slots_.live();
  absl::Span<uint64_t> candidates = absl::MakeSpan(candidates_).first(live.size());
  absl::Span<uint64_t> both = absl::MakeSpan(both_).first(live.size());
  std::copy(live.begin(), live.end(), candidates.begin());
  const auto report = [&](size_t word, uint64_t bits, size_t blocks) {
    for (; bits != 0; bits &= bits - 1) {
      const WorkerSlot slot = static_cast<WorkerSlot>(64 * word + std::countr_zero(bits));
      out->push_back({slots_.worker(slot), static_cast<int>(blocks)});
    }
  };
  size_t blocks = 0;
  size_t buckets[kAhead];
  size_t first = 0, end = 0;  // The names for which `buckets` is set.
  for (; blocks < prompt.size(); ++blocks) {
    if (blocks == end) {
      first = blocks;
      // No worker holds the first block of most prompts, so it is looked up alone.
      end = blocks == 0 ? 1 : std::min(blocks + kAhead, prompt.size());
      const auto name_of = [&](size_t i) { return prompt[first + i]; };
      LoadAhead(end - first, name_of, buckets);
    }
    const CellId id = Find(prompt[blocks], buckets[blocks - first]);
    if (id == kNoCell || !holders_.Intersect(pool_.record(id).holders, candidates, both)) break;
    Touch(id);
    if (blocks > 0) {
      for (size_t word = 0; word < both.size(); ++word) {
        report(word, candidates[word] & ~both[word], blocks);
      }
    }
    std::swap(candidates, both);
  }
  if (blocks == 0) return;
  for (size_t word = 0; word < candidates.size(); ++word) report(word, candidates[word], blocks);
}

CellId PrefixIndex::Insert(WorkerSlot slot, const Change& added, size_t bucket, CellId above) {
  const BlockName& name = added.name;
  const BlockName& parent = added.parent;
  CellId id = Find(name, bucket);
  if (id != kNoCell) Touch(id);
  const bool held_before = id != kNoCell && holders_.Has(pool_.record(id).holders, slot);
  const bool links = parent != BlockName{} && parent != name &&
                     (id == kNoCell || pool_.record(id).parent == kNoCell);
  if (!links) {
    above = kNoCell;
  } else if (above == kNoCell) {
    above = Find(parent, BucketOf(parent));
  }
  if (above != kNoCell) AddChild(above);

  size_t cells = links && above == kNoCell ? 1 : 0;
  if (id == kNoCell) {
    ++cells;
  } else if (!held_before) {
    cells += holders_.CellsToAdd(pool_.record(id).holders, slot);
  }
  const bool pinned = cells > 0 && id != kNoCell;
  if (pinned) AddChild(id);
  if (cells > 0 && !MakeRoom(cells)) {
    if (pinned) DropChild(id);
    if (above != kNoCell) DropChild(above);
    ++dropped_;
    return kNoCell;
  }
  if (links && above == kNoCell) {
    above = NewRecord(parent, BucketOf(parent));
    ++pool_.record(above).children;
  }
  if (id == kNoCell) id = NewRecord(name, bucket);
  if (links) pool_.record(id).parent = above;
  if (!held_before) AddHolder(id, slot);
  if (pinned) DropChild(id);
  return id;
}

void PrefixIndex::RemoveAdded(WorkerSlot slot, const BlockName& name, size_t bucket) {
  const CellId id = Find(name, bucket);
  if (id != kNoCell && holders_.Has(pool_.record(id).holders, slot)) RemoveHolder(id, slot);
}

void PrefixIndex::Apply(WorkerKey worker, absl::Span<const Change> changes) {
  const std::optional<WorkerSlot> slot = slots_.FindOrTake(worker);
  if (!slot) {
    dropped_ += changes.size();
    return;
  }
  size_t buckets[kAhead];
  CellId before = kNoCell;  // The record of the name that the change before this one added.
  for (size_t i = 0; i < changes.size(); ++i) {
    if (i % kAhead == 0) {
      const auto name_of = [&](size_t j) { return changes[i + j].name; };
      LoadAhead(std::min(kAhead, changes.size() - i), name_of, buckets);
    }
    const Change& change = changes[i];
    const size_t bucket = buckets[i % kAhead];
    if (change.added) {
      const bool follows = before != kNoCell && pool_.record(before).name == change.parent;
      before = Insert(*slot, change, bucket, follows ? before : kNoCell);
    } else {
      before = kNoCell;
      RemoveAdded(*slot, change.name, bucket);
    }
  }
}

void PrefixIndex::Add(WorkerKey worker, const BlockName& parent, const BlockName& name) {
  const Change change{true, name, parent};
  Apply(worker, {&change, 1});
}

void PrefixIndex::Remove(WorkerKey worker, const BlockName& name) {
  const std::optional<WorkerSlot> slot = slots_.Find(worker);
  if (slot) RemoveAdded(*slot, name, BucketOf(name));
}

void PrefixIndex::RemoveWorker(WorkerKey worker) { slots_.Remove(worker); }

// --- Sweeping ---

int PrefixIndex::SweepBucket(size_t bucket) {
  int work = 0;
  CellId id = buckets_[bucket];
  while (id != kNoCell) {
    ++work;
    bool stays = true;
    while (stays) {
      const auto slot = holders_.FirstIn(pool_.record(id).holders, slots_.dead());
      if (!slot) break;
      stays = RemoveHolder(id, *slot);
      ++work;
    }
    // RemoveHolder() may have erased other records of this bucket too, so the loop starts again at
    // the first record of the bucket.
    id = stays ? pool_.record(id).next : buckets_[bucket];
  }
  return work;
}

bool PrefixIndex::Sweep(int budget) {
  while (budget > 0 && slots_.dead_names() > 0) {
    --budget;
    for (size_t i = 0; i < kLineBuckets; ++i) {
      budget -= SweepBucket(swept_);
      swept_ = swept_ + 1 == buckets_.size() ? 0 : swept_ + 1;
    }
  }
  return slots_.dead_names() > 0;
}

}  // namespace baton
