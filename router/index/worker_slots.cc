#include "router/index/worker_slots.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"

namespace baton {
namespace {

uint64_t SlotBit(WorkerSlot slot) { return uint64_t{1} << slot % 64; }

template <typename Sorted>
auto LowerBound(Sorted& by_worker, WorkerKey worker) {
  return std::lower_bound(by_worker.begin(), by_worker.end(),
                          std::pair<WorkerKey, WorkerSlot>(worker, 0));
}

}  // namespace

const size_t WorkerSlots::kBytesPerSlot =
    sizeof(std::pair<WorkerKey, WorkerSlot>) + sizeof(Slot) + 2 * sizeof(uint64_t) / 64 + 1;

WorkerSlots::WorkerSlots(size_t max) : slots_(max), live_((max + 63) / 64), dead_((max + 63) / 64) {
  BATON_CHECK(max > 0 && max < size_t{1} << 16) << max << " workers";
  by_worker_.reserve(max);
}

std::optional<WorkerSlot> WorkerSlots::Find(WorkerKey worker) const {
  const auto it = LowerBound(by_worker_, worker);
  if (it == by_worker_.end() || it->first != worker) return std::nullopt;
  return it->second;
}

std::optional<WorkerSlot> WorkerSlots::FindOrTake(WorkerKey worker) {
  const auto it = LowerBound(by_worker_, worker);
  if (it != by_worker_.end() && it->first == worker) return it->second;
  size_t slot = 0;
  for (size_t word = 0; word < live_.size(); ++word) {
    slot = 64 * word + std::countr_one(live_[word] | dead_[word]);
    if (slot < 64 * word + 64) break;
  }
  if (slot >= slots_.size()) return std::nullopt;
  const WorkerSlot taken = static_cast<WorkerSlot>(slot);
  slots_[taken] = {worker, 0};
  live_[taken / 64] |= SlotBit(taken);
  by_worker_.insert(it, {worker, taken});
  CountWords();
  return taken;
}

bool WorkerSlots::Remove(WorkerKey worker) {
  const auto it = LowerBound(by_worker_, worker);
  if (it == by_worker_.end() || it->first != worker) return false;
  const WorkerSlot slot = it->second;
  by_worker_.erase(it);
  live_[slot / 64] &= ~SlotBit(slot);
  if (slots_[slot].names > 0) {
    dead_[slot / 64] |= SlotBit(slot);
    dead_names_ += slots_[slot].names;
  }
  CountWords();
  return true;
}

void WorkerSlots::RemoveName(WorkerSlot slot) {
  BATON_CHECK(slots_[slot].names > 0) << "slot " << slot;
  --slots_[slot].names;
  if ((dead_[slot / 64] & SlotBit(slot)) == 0) return;
  --dead_names_;
  if (slots_[slot].names > 0) return;
  dead_[slot / 64] &= ~SlotBit(slot);
  CountWords();
}

void WorkerSlots::CountWords() {
  words_ = live_.size();
  while (words_ > 0 && (live_[words_ - 1] | dead_[words_ - 1]) == 0) --words_;
}

}  // namespace baton
