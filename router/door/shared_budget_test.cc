#include "router/door/shared_budget.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Shares = std::vector<SharedBudget::Share>;

// Takes amounts for a caller until it gets no more. Returns the number of them.
size_t TakeAll(SharedBudget* budget, const std::string& caller, size_t amount, Shares* shares) {
  size_t taken = 0;
  while (std::optional<SharedBudget::Share> share = budget->Take(caller, amount)) {
    shares->push_back(*std::move(share));
    ++taken;
  }
  return taken;
}

TEST(SharedBudgetTest, OneCallerGetsThreeTimesWhatIsLeft) {
  SharedBudget budget(64);
  Shares shares;
  EXPECT_EQ(TakeAll(&budget, "a", 1, &shares), 48u);
  EXPECT_EQ(budget.TakenBy("a"), 48u);
  // The second one gets its part of the rest, and a third one still something.
  EXPECT_EQ(TakeAll(&budget, "b", 1, &shares), 12u);
  EXPECT_EQ(TakeAll(&budget, "c", 1, &shares), 3u);
  EXPECT_EQ(TakeAll(&budget, "d", 1, &shares), 1u);
  EXPECT_EQ(TakeAll(&budget, "e", 1, &shares), 0u) << "all are taken";
  EXPECT_EQ(budget.taken(), 64u);
  shares.clear();
  EXPECT_EQ(budget.taken(), 0u);
  EXPECT_EQ(budget.TakenBy("a"), 0u);
}

TEST(SharedBudgetTest, CallersThatComeTogetherGetTheSame) {
  SharedBudget budget(70);
  Shares shares;
  for (int i = 0; i < 70; ++i) {
    for (const char* caller : {"a", "b"}) {
      if (auto share = budget.Take(caller, 1)) shares.push_back(*std::move(share));
    }
  }
  EXPECT_EQ(budget.TakenBy("a"), 30u);
  EXPECT_EQ(budget.TakenBy("b"), 30u);
}

TEST(SharedBudgetTest, AnAmountThatIsAloneMayBeLargerThanTheMax) {
  SharedBudget budget(100);
  {
    const auto alone = budget.Take("a", 1000);
    ASSERT_TRUE(alone.has_value());
    EXPECT_FALSE(budget.Take("a", 1).has_value());
    EXPECT_FALSE(budget.Take("b", 1).has_value());
    EXPECT_EQ(budget.taken(), 1000u);
  }
  const auto small = budget.Take("a", 1);
  EXPECT_FALSE(budget.Take("b", 100).has_value());
  EXPECT_TRUE(budget.Take("b", 99).has_value());
}

TEST(SharedBudgetTest, TheLastOneIsForACallerThatHasNothing) {
  SharedBudget budget(2);
  const auto first = budget.Take("a", 1);
  EXPECT_FALSE(budget.Take("a", 1).has_value());
  EXPECT_TRUE(budget.Take("b", 1).has_value());
}

}  // namespace
}  // namespace baton
