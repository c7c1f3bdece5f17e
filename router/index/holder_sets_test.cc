#include "router/index/holder_sets.h"

#include <bit>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

// Compares HolderSets with std::set in random histories. The slots in a history either are few, or
// lie on several pages.
TEST(HolderSetsTest, AgreesWithASet) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    CellPool pool(2);
    HolderSets sets(&pool);
    HolderSet set;
    std::set<WorkerSlot> reference;
    const uint32_t slots = round % 2 == 0 ? 20 : 4000;
    std::vector<uint64_t> mask(1 + random() % 64), both(mask.size());
    for (uint64_t& word : mask) word = (uint64_t{random()} << 32 | random()) & random();
    const uint32_t target = random() % 30;
    for (int i = 0; i < 300; ++i) {
      const WorkerSlot slot = static_cast<WorkerSlot>(random() % slots);
      ASSERT_EQ(sets.Has(set, slot), reference.count(slot) > 0);
      if (reference.size() < target + random() % 10) {
        if (!reference.insert(slot).second) continue;
        const size_t used = pool.used(), cells = sets.CellsToAdd(set, slot);
        sets.Add(&set, slot);
        ASSERT_EQ(pool.used(), used + cells);
      } else if (!reference.empty()) {
        auto removed = reference.lower_bound(slot);
        if (removed == reference.end()) removed = reference.begin();
        sets.Remove(&set, *removed);
        reference.erase(removed);
      }
      ASSERT_EQ(set.count, reference.size());
      std::set<WorkerSlot> visited, masked;
      sets.ForEach(set, [&](WorkerSlot s) { visited.insert(s); });
      ASSERT_EQ(visited, reference);
      for (const WorkerSlot s : reference) {
        if (s / 64u < mask.size() && (mask[s / 64] >> s % 64 & 1) != 0) masked.insert(s);
      }
      ASSERT_EQ(sets.Intersect(set, mask, absl::MakeSpan(both)), !masked.empty());
      size_t bits = 0;
      for (const uint64_t word : both) bits += std::popcount(word);
      ASSERT_EQ(bits, masked.size());
      for (const WorkerSlot s : masked) ASSERT_TRUE(both[s / 64] >> s % 64 & 1);
      const auto first = sets.FirstIn(set, mask);
      ASSERT_EQ(first.has_value(), !masked.empty());
      if (first) {
        ASSERT_EQ(masked.count(*first), 1u);
      }
    }
    sets.Clear(&set);
    ASSERT_EQ(pool.used(), 0u);
    ASSERT_EQ(pool.bytes(), 0u);
  }
}

}  // namespace
}  // namespace baton
