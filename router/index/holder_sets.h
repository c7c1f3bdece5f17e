#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "router/index/cell_pool.h"

namespace baton {

// Changes and reads the sets of workers that hold a name. A set of up to HolderSet::kInline workers
// takes no memory beyond its record. A larger one takes one cell per HolderPage::kSlots slots, and
// returns the cells when it becomes smaller. One thread only.
//
// Masks are bitmaps of worker slots. The bits behind the end of a mask count as 0.
class HolderSets {
 public:
  // `pool` outlives the object.
  explicit HolderSets(CellPool* pool) : pool_(pool) {}

  bool Has(const HolderSet& set, WorkerSlot slot) const;
  // Returns the number of cells that Add() would take. The slot is not in the set.
  size_t CellsToAdd(const HolderSet& set, WorkerSlot slot) const;
  // Adds a slot that is not in the set. Aborts if the pool has too few cells.
  void Add(HolderSet* set, WorkerSlot slot);
  // Removes a slot that is in the set.
  void Remove(HolderSet* set, WorkerSlot slot);
  void Clear(HolderSet* set);

  // Sets `both`, which is as long as `mask`, to the slots that are in the set and in the mask.
  // Returns true if there are any.
  bool Intersect(const HolderSet& set, absl::Span<const uint64_t> mask,
                 absl::Span<uint64_t> both) const;
  // Returns a slot that is in the set and in the mask; nothing if there is none.
  std::optional<WorkerSlot> FirstIn(const HolderSet& set, absl::Span<const uint64_t> mask) const;
  // Calls `visit` with each slot. `visit` must not change the set.
  template <typename Visit>
  void ForEach(const HolderSet& set, Visit visit) const {
    if (!set.paged()) {
      for (int i = 0; i < set.count; ++i) visit(set.slots[i]);
      return;
    }
    for (CellId id = set.first_page; id != kNoCell; id = pool_->page(id).next) {
      const HolderPage& page = pool_->page(id);
      for (int word = 0; word < HolderPage::kWords; ++word) {
        for (uint64_t bits = page.bits[word]; bits != 0; bits &= bits - 1) {
          visit(static_cast<WorkerSlot>(HolderPage::kSlots * page.number + 64 * word +
                                        std::countr_zero(bits)));
        }
      }
    }
  }

 private:
  // Sets the bit of `slot` in the pages of a set. Inserts the slot's page if it is missing.
  void SetBit(CellId* first_page, WorkerSlot slot);

  CellPool* const pool_;
};

}  // namespace baton
