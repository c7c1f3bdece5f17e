#include "common/kv_cache/block_pool.h"

#include <algorithm>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(BlockPoolTest, TakesAllOrNothing) {
  BlockPool pool(4);
  const auto three = pool.Take(3).value();
  EXPECT_EQ(pool.free_blocks(), 1);
  const auto none = pool.Take(2);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(none.status().message(), "KV blocks: 2 wanted, 1 of 4 free");
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.Release(three);
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_TRUE(pool.Take(0)->empty());
}

TEST(BlockPoolTest, SharedBlockComesBackWithItsLastUser) {
  BlockPool pool(1);
  const BlockId block = pool.Take(1)->front();
  pool.AddRef(block);
  pool.Release(block);
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_EQ(pool.generation(block), 1u);
  pool.Release(block);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_EQ(pool.references(block), 0);
}

TEST(BlockPoolTest, GenerationIsOddExactlyWhileHeld) {
  std::atomic<uint64_t> generations[2] = {0, 6};
  BlockPool pool(2, generations);
  const auto blocks = pool.Take(2).value();
  EXPECT_EQ(generations[0], 1u);
  EXPECT_EQ(generations[1], 7u);
  pool.Release(1);
  EXPECT_EQ(generations[1], 8u);
  EXPECT_THAT(pool.Take(1).value(), ElementsAre(1));
  EXPECT_EQ(generations[1], 9u);
}

TEST(BlockPoolTest, PrefersTheShortestRunThatIsLongEnough) {
  BlockPool pool(16);
  const auto all = pool.Take(16).value();
  for (const BlockId b : {1, 2, 3, 4, 5, 8, 9, 10, 13}) pool.Release(b);
  EXPECT_THAT(pool.Take(3).value(), ElementsAre(8, 9, 10));
  EXPECT_THAT(pool.Take(1).value(), ElementsAre(13));
  EXPECT_THAT(pool.Take(2).value(), ElementsAre(1, 2));
  pool.Release({15, 8});
  EXPECT_THAT(pool.Take(5).value(), ElementsAre(3, 4, 5, 15, 8));  // takes the longest runs first
}

TEST(BlockPoolTest, FreedNeighboursBecomeOneRun) {
  BlockPool pool(8);
  pool.Take(8).value();
  for (const BlockId b : {3, 5, 4, 0}) pool.Release(b);
  EXPECT_THAT(pool.Take(3).value(), ElementsAre(3, 4, 5));
}

TEST(BlockPoolTest, LastFreedIsReusedFirstWhenAskedFor) {
  BlockPool pool(8, nullptr, BlockPool::Reuse::kLastFreed);
  EXPECT_THAT(pool.Take(3).value(), ElementsAre(0, 1, 2));
  pool.Release({2, 0});
  EXPECT_THAT(pool.Take(3).value(), ElementsAre(0, 2, 3));
}

TEST(BlockPoolTest, NoBlockIsLentTwiceInALongRandomRun) {
  for (const auto reuse : {BlockPool::Reuse::kContiguous, BlockPool::Reuse::kLastFreed}) {
    std::mt19937 random(7);
    BlockPool pool(97, nullptr, reuse);
    std::vector<std::vector<BlockId>> held;
    std::set<BlockId> lent;
    for (int i = 0; i < 20000; ++i) {
      if (random() % 2 == 0) {
        auto blocks = pool.Take(random() % 12);
        if (!blocks.ok()) continue;
        for (const BlockId b : *blocks) ASSERT_TRUE(lent.insert(b).second) << b;
        held.push_back(*std::move(blocks));
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        for (const BlockId b : held.back()) lent.erase(b);
        pool.Release(held.back());
        held.pop_back();
      }
      ASSERT_EQ(pool.free_blocks(), 97 - static_cast<int>(lent.size()));
    }
    for (const auto& blocks : held) pool.Release(blocks);
    EXPECT_EQ(pool.Take(97)->size(), 97u);
  }
}

TEST(BlockPoolDeathTest, DiesOnMisuse) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Release(0), "block 0 is free");
  EXPECT_DEATH(pool.AddRef(1), "block 1 is free");
  EXPECT_DEATH(pool.Release(2), "block 2 of 2");
  EXPECT_DEATH(pool.Release(-1), "block -1 of 2");
  std::atomic<uint64_t> odd[1] = {3};
  EXPECT_DEATH(BlockPool(1, odd), "generation 3");
}

}  // namespace
}  // namespace baton
