#include "kernels/device/simt/memory_map.h"

#include <vector>

#include "gtest/gtest.h"

namespace baton::simt {
namespace {

TEST(MemoryMapTest, FindsTheRegionOfEachByteAndNoneBetween) {
  std::vector<std::byte> memory(300);
  MemoryMap map;
  map.Add(&memory[100], 50, true);
  map.Add(&memory[200], 1, true);
  map.Add(&memory[0], 10, true);
  for (int i = 0; i < 300; ++i) {
    const MemoryMap::Region* region = map.Find(&memory[i]);
    if (i >= 100 && i < 150) {
      ASSERT_NE(region, nullptr) << i;
      EXPECT_EQ(region->base(), &memory[100]);
      EXPECT_EQ(region->bytes(), 50u);
    } else {
      EXPECT_EQ(region != nullptr, i < 10 || i == 200) << i;
    }
    EXPECT_EQ(map.Contains(&memory[i], 8), i <= 2 || (i >= 100 && i <= 142)) << i;
  }
  map.Remove(&memory[100]);
  EXPECT_EQ(map.Find(&memory[120]), nullptr);
  map.Add(&memory[90], 60, true);
  EXPECT_EQ(map.Find(&memory[120])->base(), &memory[90]);
}

TEST(MemoryMapTest, KnowsEachByteThatWasWritten) {
  std::vector<std::byte> memory(1000);
  MemoryMap map;
  map.Add(&memory[0], 500, false);
  map.Add(&memory[500], 100, true);
  map.Add(&memory[600], 300, false);
  std::vector<bool> written(1000);
  for (int i = 500; i < 600; ++i) written[i] = true;
  const int runs[][2] = {{0, 1}, {63, 1}, {65, 2}, {100, 200}, {450, 200}, {899, 50}, {700, 64}};
  for (const auto& [from, bytes] : runs) {
    map.MarkWritten(&memory[from], bytes);
    for (int i = from; i < from + bytes; ++i) written[i] = true;
    for (int i = 0; i < 900; ++i) {
      const MemoryMap::Region* region = map.Find(&memory[i]);
      const size_t offset = &memory[i] - region->base();
      ASSERT_EQ(region->Written(offset, 1), written[i]) << i;
      if (offset + 3 <= region->bytes()) {
        ASSERT_EQ(region->Written(offset, 3), written[i] && written[i + 1] && written[i + 2]) << i;
      }
    }
  }
}

TEST(MemoryMapDeathTest, RefusesOverlapsAndUnknownRegions) {
  std::vector<std::byte> memory(100);
  MemoryMap map;
  map.Add(&memory[20], 20, true);
  EXPECT_DEATH(map.Add(&memory[39], 1, true), "overlap");
  EXPECT_DEATH(map.Add(&memory[10], 11, true), "overlap");
  EXPECT_DEATH(map.Add(&memory[10], 50, true), "overlap");
  EXPECT_DEATH(map.Remove(&memory[21]), "no region");
}

}  // namespace
}  // namespace baton::simt
