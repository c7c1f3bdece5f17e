#include "common/worker/caller_turns.h"

#include <array>
#include <random>

#include "gtest/gtest.h"

namespace baton {
namespace {

using Prompt = CallerTurns::Prompt;
using Order = std::vector<size_t>;

TEST(CallerTurnsTest, ThePromptsOfOneCallerKeepTheirOrder) {
  CallerTurns turns;
  EXPECT_EQ(turns.Order({{7, 500}, {7, 20}, {7, 0}, {7, 100}}), (Order{0, 1, 2, 3}));
  EXPECT_EQ(turns.Order({}), Order{});
}

TEST(CallerTurnsTest, TheCallerThatWillHaveHadTheFewestTokensGoesFirst) {
  CallerTurns turns;
  EXPECT_EQ(turns.Order({{1, 500}, {2, 20}, {2, 400}, {2, 100}, {3, 510}}), (Order{1, 2, 0, 4, 3}));
}

TEST(CallerTurnsTest, ACallerThatComesGetsNoCreditForTheTimeBefore) {
  CallerTurns turns;
  turns.Order({{1, 1000}});
  turns.Charge(1, 500);
  turns.Order({{1, 500}});
  // Caller 2 begins with the 500 tokens of caller 1.
  EXPECT_EQ(turns.Order({{1, 500}, {2, 499}, {2, 2}}), (Order{1, 0, 2}));
}

TEST(CallerTurnsTest, ACallerThatWasAloneHasNoDebtWhenOthersCome) {
  CallerTurns turns;
  for (int i = 0; i < 1000; ++i) {
    turns.Order({{1, 20}});
    turns.Charge(1, 20);
    turns.Order({});
  }
  turns.Order({{2, 3000}, {3, 3000}});
  turns.Charge(2, 512);
  EXPECT_EQ(turns.Order({{2, 2488}, {3, 3000}, {1, 20}}), (Order{2, 1, 0}));
}

TEST(CallerTurnsTest, ACallerThatLeavesAndComesBackHasNotLostItsCharge) {
  CallerTurns turns;
  turns.Order({{1, 100}, {2, 100}});
  turns.Charge(1, 100);
  turns.Order({{2, 100}});
  EXPECT_EQ(turns.Order({{1, 10}, {2, 100}}), (Order{1, 0}));
}

// One caller always has a thousand short prompts, and another one long prompt.
TEST(CallerTurnsTest, CallersThatAlwaysHavePromptsGetTheSameNumberOfTokens) {
  CallerTurns turns;
  std::mt19937_64 random(1);
  std::array<int, 3> got{};
  std::vector<Prompt> prompts = {{2, 3000}};
  for (int step = 0; step < 1000; ++step) {
    while (prompts.size() < 1001) {
      prompts.push_back({1, static_cast<int>(random() % 40) + 1});
    }
    int room = 256;
    for (const size_t i : turns.Order(prompts)) {
      const int tokens = std::min(room, prompts[i].left);
      prompts[i].left -= tokens;
      room -= tokens;
      turns.Charge(prompts[i].caller, tokens);
      got[prompts[i].caller] += tokens;
    }
    std::erase_if(prompts, [](const Prompt& prompt) { return prompt.left == 0; });
    if (prompts.front().caller != 2) prompts.insert(prompts.begin(), {2, 3000});
  }
  EXPECT_NEAR(got[1], got[2], 3000);
}

// The prompts of callers 2 and 3 can't begin for a while. Then neither of them keeps caller 1
// waiting for as long as it was alone, and both get their turns, although those of 2 are shorter.
TEST(CallerTurnsTest, CallersWhosePromptsCouldNotBeginGetSomeCredit) {
  CallerTurns turns;
  const std::vector<Prompt> prompts = {{1, 100}, {2, 10}, {3, 100}};
  turns.Order(prompts);
  turns.Charge(1, 100'000);
  EXPECT_EQ(turns.Order(prompts).back(), 0u);
  std::array<int, 4> got{};
  for (int i = 0; i < 3000; ++i) {
    const Prompt& next = prompts[turns.Order(prompts)[0]];
    turns.Charge(next.caller, next.left);
    got[next.caller] += next.left;
    // Caller 1 goes on where the others can't begin.
    if (i % 10 == 0) turns.Charge(1, 1000);
  }
  EXPECT_GT(got[2], 0);
  EXPECT_GE(got[3], got[2] / 2);
  turns.Order(prompts);
  int alone = 0;
  while (turns.Order(prompts)[0] != 0) {
    const Prompt& next = prompts[turns.Order(prompts)[0]];
    turns.Charge(next.caller, next.left);
    alone += next.left;
  }
  EXPECT_LE(alone, 2 * (1024 + 3 * 100));
}

TEST(CallerTurnsTest, ManyCallersThatAreGoneAreForgotten) {
  CallerTurns turns;
  turns.Order({{1, 10}});
  // Each of these callers was charged more than caller 1, so none is forgotten at once.
  for (uint64_t caller = 2; caller < CallerTurns::kMaxIdle + 10; ++caller) {
    turns.Charge(caller, 1000);
  }
  EXPECT_EQ(turns.Order({{1, 10}, {2, 5}}), (Order{0, 1}));
  EXPECT_EQ(turns.Order({{1, 10}, {3, 5}}), (Order{1, 0}));  // its charge was forgotten
}

}  // namespace
}  // namespace baton
