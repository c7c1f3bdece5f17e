#include "router/index/holder_sets.h"

#include <algorithm>

namespace baton {
namespace {

uint32_t PageOf(WorkerSlot slot) { return slot / HolderPage::kSlots; }
int WordOf(WorkerSlot slot) { return slot % HolderPage::kSlots / 64; }
uint64_t BitOf(WorkerSlot slot) { return uint64_t{1} << slot % HolderPage::kSlots % 64; }

bool InMask(absl::Span<const uint64_t> mask, WorkerSlot slot) {
  return slot / 64u < mask.size() && (mask[slot / 64] >> slot % 64 & 1) != 0;
}

}  // namespace

bool HolderSets::Has(const HolderSet& set, WorkerSlot slot) const {
  if (!set.paged())
    return std::find(set.slots, set.slots + set.count, slot) != set.slots + set.count;
  for (CellId id = set.first_page; id != kNoCell; id = pool_->page(id).next) {
    const HolderPage& page = pool_->page(id);
    if (page.number == PageOf(slot)) return (page.bits[WordOf(slot)] & BitOf(slot)) != 0;
  }
  return false;
}

size_t HolderSets::CellsToAdd(const HolderSet& set, WorkerSlot slot) const {
  if (set.count < HolderSet::kInline) return 0;
  size_t cells = 1;
  if (set.paged()) {
    for (CellId id = set.first_page; id != kNoCell; id = pool_->page(id).next) {
      if (pool_->page(id).number == PageOf(slot)) cells = 0;
    }
    return cells;
  }
  for (int i = 0; i < set.count; ++i) {
    bool is_new = PageOf(set.slots[i]) != PageOf(slot);
    for (int j = 0; j < i; ++j) is_new = is_new && PageOf(set.slots[i]) != PageOf(set.slots[j]);
    if (is_new) ++cells;
  }
  return cells;
}

void HolderSets::SetBit(CellId* first_page, WorkerSlot slot) {
  CellId* link = first_page;
  while (*link != kNoCell && pool_->page(*link).number < PageOf(slot)) {
    link = &pool_->page(*link).next;
  }
  if (*link == kNoCell || pool_->page(*link).number != PageOf(slot)) {
    const CellId id = pool_->Take();
    pool_->page(id) = HolderPage{.next = *link, .number = PageOf(slot)};
    *link = id;
  }
  pool_->page(*link).bits[WordOf(slot)] |= BitOf(slot);
}

void HolderSets::Add(HolderSet* set, WorkerSlot slot) {
  if (set->count < HolderSet::kInline) {
    set->slots[set->count++] = slot;
    return;
  }
  if (!set->paged()) {
    CellId first_page = kNoCell;
    for (const WorkerSlot old : set->slots) SetBit(&first_page, old);
    set->first_page = first_page;
  }
  SetBit(&set->first_page, slot);
  ++set->count;
}

void HolderSets::Remove(HolderSet* set, WorkerSlot slot) {
  if (!set->paged()) {
    *std::find(set->slots, set->slots + set->count, slot) = set->slots[set->count - 1];
    --set->count;
    return;
  }
  CellId* link = &set->first_page;
  while (pool_->page(*link).number != PageOf(slot)) link = &pool_->page(*link).next;
  HolderPage& page = pool_->page(*link);
  page.bits[WordOf(slot)] &= ~BitOf(slot);
  if (std::all_of(page.bits, page.bits + HolderPage::kWords, [](uint64_t w) { return w == 0; })) {
    const CellId empty = *link;
    *link = page.next;
    pool_->Give(empty);
  }
  if (set->count > HolderSet::kInline + 1) {
    --set->count;
    return;
  }
  HolderSet small;
  ForEach(*set, [&](WorkerSlot left) { small.slots[small.count++] = left; });
  Clear(set);
  *set = small;
}

void HolderSets::Clear(HolderSet* set) {
  if (set->paged()) {
    for (CellId id = set->first_page; id != kNoCell;) {
      const CellId next = pool_->page(id).next;
      pool_->Give(id);
      id = next;
    }
  }
  set->count = 0;
}

bool HolderSets::Intersect(const HolderSet& set, absl::Span<const uint64_t> mask,
                           absl::Span<uint64_t> both) const {
  std::fill(both.begin(), both.end(), 0);
  uint64_t any = 0;
  if (!set.paged()) {
    for (int i = 0; i < set.count; ++i) {
      if (!InMask(mask, set.slots[i])) continue;
      both[set.slots[i] / 64] |= uint64_t{1} << set.slots[i] % 64;
      any = 1;
    }
    return any != 0;
  }
  for (CellId id = set.first_page; id != kNoCell; id = pool_->page(id).next) {
    const HolderPage& page = pool_->page(id);
    for (size_t i = 0, at = HolderPage::kWords * page.number;
         i < HolderPage::kWords && at < mask.size(); ++i, ++at) {
      any |= both[at] = mask[at] & page.bits[i];
    }
  }
  return any != 0;
}

std::optional<WorkerSlot> HolderSets::FirstIn(const HolderSet& set,
                                              absl::Span<const uint64_t> mask) const {
  if (!set.paged()) {
    for (int i = 0; i < set.count; ++i) {
      if (InMask(mask, set.slots[i])) return set.slots[i];
    }
    return std::nullopt;
  }
  for (CellId id = set.first_page; id != kNoCell; id = pool_->page(id).next) {
    const HolderPage& page = pool_->page(id);
    for (size_t i = 0, at = HolderPage::kWords * page.number;
         i < HolderPage::kWords && at < mask.size(); ++i, ++at) {
      if (const uint64_t found = mask[at] & page.bits[i]; found != 0) {
        return static_cast<WorkerSlot>(64 * at + std::countr_zero(found));
      }
    }
  }
  return std::nullopt;
}

}  // namespace baton
