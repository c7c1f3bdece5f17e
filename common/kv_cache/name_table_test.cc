#include "common/kv_cache/name_table.h"

#include <map>
#include <random>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(NameTableTest, FindsWhatAMapFinds) {
  constexpr int kBlocks = 50;
  NameTable table(kBlocks, /*hash_key=*/7);
  std::map<BlockName, BlockId> model;
  std::map<BlockId, BlockName> names;
  std::mt19937_64 random(1);
  for (int step = 0; step < 20'000; ++step) {
    // Few names, so that names come back and buckets have several blocks.
    const BlockName name{random() % 10, random() % 10};
    const BlockId block = static_cast<BlockId>(random() % kBlocks);
    if (const auto named = names.find(block); named != names.end()) {
      EXPECT_EQ(table.NameOf(block), named->second);
      table.Remove(block);
      model.erase(named->second);
      names.erase(named);
    } else if (!model.contains(name)) {
      table.Add(block, name);
      model[name] = block;
      names[block] = name;
    }
    const auto found = model.find(name);
    ASSERT_EQ(table.Find(name), found == model.end() ? NameTable::kNoBlock : found->second);
    ASSERT_EQ(table.size(), static_cast<int>(model.size()));
  }
}

TEST(NameTableTest, ATableForNoBlocksFindsNothing) {
  EXPECT_EQ(NameTable(0, 0).Find({1, 2}), NameTable::kNoBlock);
}

}  // namespace
}  // namespace baton
