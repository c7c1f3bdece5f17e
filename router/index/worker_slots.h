#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "router/index/cell_pool.h"
#include "router/index/worker_key.h"

namespace baton {

// Gives each worker a small number, its slot, and counts the names that the worker holds. When a
// worker goes, its slot is *dead* until all these names are removed. Then another worker can get
// the slot. All memory is allocated at the start. One thread only.
class WorkerSlots {
 public:
  // Bytes of memory per slot.
  static const size_t kBytesPerSlot;

  explicit WorkerSlots(size_t max);

  // Returns the worker's slot; nothing if the worker is unknown.
  std::optional<WorkerSlot> Find(WorkerKey worker) const;
  // Returns the worker's slot, and gives it the lowest free one if it has none. Returns nothing if
  // no slot is free.
  std::optional<WorkerSlot> FindOrTake(WorkerKey worker);
  // Makes the slot of a worker dead, or free if the worker holds no name. Returns false if the
  // worker is unknown.
  bool Remove(WorkerKey worker);
  WorkerKey worker(WorkerSlot slot) const { return slots_[slot].worker; }
  size_t workers() const { return by_worker_.size(); }

  // Counts a name that the slot's worker begins or ceases to hold.
  void AddName(WorkerSlot slot) { ++slots_[slot].names; }
  void RemoveName(WorkerSlot slot);

  // Bitmaps of the slots of the workers, and of the dead slots. They end behind the last slot that
  // is not free.
  absl::Span<const uint64_t> live() const { return absl::MakeSpan(live_).first(words_); }
  absl::Span<const uint64_t> dead() const { return absl::MakeSpan(dead_).first(words_); }
  // Number of names that are counted for all dead slots together.
  size_t dead_names() const { return dead_names_; }

 private:
  struct Slot {
    WorkerKey worker = 0;
    uint32_t names = 0;
  };
  // Corrects `words_`. Must be called when a bitmap has changed.
  void CountWords();

  std::vector<std::pair<WorkerKey, WorkerSlot>> by_worker_;  // Sorted.
  std::vector<Slot> slots_;
  std::vector<uint64_t> live_, dead_;
  size_t words_ = 0;
  size_t dead_names_ = 0;
};

}  // namespace baton
