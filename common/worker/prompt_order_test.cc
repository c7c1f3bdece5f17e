#include "common/worker/prompt_order.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

using OrderedPrompt = PromptOrder::Prompt;

const absl::Time kNow = absl::UnixEpoch();

absl::Time In(int seconds) { return kNow + absl::Seconds(seconds); }

// An order of a worker that computes 100 tokens per second.
PromptOrder HundredPerSecond() {
  PromptOrder order;
  order.NoteStep(100, 100, absl::Seconds(1));
  return order;
}

std::vector<uint64_t> Sorted(PromptOrder order, std::vector<OrderedPrompt> prompts) {
  order.Sort(&prompts, kNow);
  std::vector<uint64_t> ids;
  for (const OrderedPrompt& prompt : prompts) ids.push_back(prompt.id);
  return ids;
}

using Ids = std::vector<uint64_t>;

TEST(PromptOrderTest, StepsAreFourWholeBlocksOrMore) {
  EXPECT_EQ(PromptOrder::StepTokens(128, 16), 128);
  EXPECT_EQ(PromptOrder::StepTokens(512, 64), 512);
  EXPECT_EQ(PromptOrder::StepTokens(128, 24), 144);
  EXPECT_EQ(PromptOrder::StepTokens(128, 128), 512);
  for (int block_tokens = 1; block_tokens <= 1024; ++block_tokens) {
    const int step = PromptOrder::StepTokens(128, block_tokens);
    EXPECT_EQ(step % block_tokens, 0) << block_tokens;
    EXPECT_GE(step, 128);
    EXPECT_LE(PromptOrder::OldestShare(step, block_tokens), step / 4) << block_tokens;
  }
}

TEST(PromptOrderTest, WithoutDueTimesTheFewestTokensGoFirstAndThenTheOldest) {
  EXPECT_EQ(Sorted(PromptOrder(), {{1, 500}, {2, 20}, {3, 100}, {4, 20}}), (Ids{2, 4, 3, 1}));
}

TEST(PromptOrderTest, PromptsThatCanBeInTimeGoFirstByDueTime) {
  EXPECT_EQ(
      Sorted(HundredPerSecond(), {{1, 10}, {2, 300, In(9)}, {3, 200, In(2)}, {4, 100, In(9)}}),
      (Ids{3, 4, 2, 1}));
}

TEST(PromptOrderTest, APromptThatCanNotBeInTimeGoesWithThoseWithoutADueTime) {
  EXPECT_EQ(Sorted(HundredPerSecond(), {{1, 250}, {2, 201, In(2)}, {3, 300, In(4)}}),
            (Ids{3, 2, 1}));
  EXPECT_EQ(Sorted(HundredPerSecond(), {{1, 250}, {2, 200, In(2)}, {3, 200, In(4)}}),
            (Ids{2, 3, 1}));
}

TEST(PromptOrderTest, IfNotAllCanBeInTimeTheLongestIsLeftOut) {
  // All three alone could be in time, and also the first and the third together.
  EXPECT_EQ(Sorted(HundredPerSecond(), {{1, 100, In(2)}, {2, 250, In(3)}, {3, 200, In(4)}}),
            (Ids{1, 3, 2}));
}

TEST(PromptOrderTest, WhileTheSpeedIsNotKnownOnlyPassedDueTimesAreMissed) {
  EXPECT_EQ(Sorted(PromptOrder(), {{1, 10}, {2, 1 << 20, In(1)}, {3, 5, In(-1)}}), (Ids{2, 3, 1}));
}

TEST(PromptOrderTest, ShortStepsDoNotChangeTheSpeed) {
  PromptOrder order = HundredPerSecond();
  for (int i = 0; i < 100; ++i) order.NoteStep(1, 100, absl::Seconds(1));
  EXPECT_EQ(Sorted(order, {{1, 10}, {2, 200, In(2)}}), (Ids{2, 1}));
  for (int i = 0; i < 100; ++i) order.NoteStep(100, 100, absl::Seconds(2));
  EXPECT_EQ(Sorted(order, {{1, 10}, {2, 200, In(2)}}), (Ids{1, 2}));
}

TEST(PromptOrderTest, TheShareOfTheOldestIsAQuarterInWholeBlocks) {
  EXPECT_EQ(PromptOrder::OldestShare(512, 16), 128);
  EXPECT_EQ(PromptOrder::OldestShare(560, 16), 128);
  EXPECT_EQ(PromptOrder::OldestShare(32, 16), 16);
}

}  // namespace
}  // namespace baton
