#include <algorithm>

#include "gtest/gtest.h"
#include "prefill_worker/prefill_harness.h"

// Tests of the order in which a prefill worker computes its prompts.
namespace baton {
namespace {

class PrefillOrderTest : public PrefillWorkerTest {
 protected:
  void Turns(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      KvTurn();
      WorkerTurn();
    }
  }
  // Runs until nothing is left to do. Returns the numbers of the records in the order in which they
  // got their first tokens; those of the same step by number.
  std::vector<int> FirstTokens(const std::vector<Record>& records) {
    std::vector<int> order;
    for (int idle = 0; idle < 4; ++idle) {
      if (KvTurn() | WorkerTurn()) idle = 0;
      for (int i = 0; i < static_cast<int>(records.size()); ++i) {
        const bool known = std::find(order.begin(), order.end(), i) != order.end();
        if (records[i].first && !known) order.push_back(i);
      }
    }
    return order;
  }
  void SubmitDue(std::vector<TokenId> prompt, absl::Duration in, Record* record) {
    PrefillJob job = Job(std::move(prompt));
    job.due = now_ + in;
    ASSERT_TRUE(Submit(std::move(job), record).ok());
  }
  static std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

TEST_F(PrefillOrderTest, AShortPromptDoesNotWaitForALongOneThatCameFirst) {
  Start(64, {.chunk_tokens = 16});
  Record long_one, short_one;
  ASSERT_TRUE(Submit(Job(Prompt(120)), &long_one).ok());
  Turns(3);
  ASSERT_TRUE(Submit(Job(Prompt(12)), &short_one).ok());
  // In the first turn the prompt is admitted, in the second it runs, and in the third its token is
  // handed out.
  Turns(3);
  EXPECT_TRUE(short_one.first);
  EXPECT_FALSE(long_one.first);
  Settle();
  EXPECT_TRUE(long_one.first);
  EXPECT_EQ(worker_->Load().steps, 9u);  // 132 tokens in steps of 16
}

// All prompts of caller 1 are shorter than the one of caller 2.
TEST_F(PrefillOrderTest, CallersTakeTurns) {
  Start(256, {.chunk_tokens = 16});
  std::vector<Record> records(8);
  for (int i = 0; i < 8; ++i) {
    PrefillJob job = Job(Prompt(i == 3 ? 36 : 24));
    job.caller = i == 3 ? 2 : 1;
    ASSERT_TRUE(Submit(std::move(job), &records[i]).ok());
  }
  // Caller 2 is next after one prompt of caller 1, and then caller 1 has the others.
  EXPECT_EQ(FirstTokens(records), (std::vector<int>{0, 3, 1, 2, 4, 5, 6, 7}));
}

TEST_F(PrefillOrderTest, ShortPromptsThatKeepComingDoNotStarveALongOne) {
  Start(256, {.chunk_tokens = 16});
  Record long_one;
  ASSERT_TRUE(Submit(Job(Prompt(80)), &long_one).ok());
  std::vector<Record> short_ones(100);
  size_t next = 0;
  while (!long_one.first && next < short_ones.size()) {
    for (int i = 0; i < 2; ++i) {
      const auto id = Submit(Job(Prompt(16)), &short_ones[next++]);
      ASSERT_TRUE(id.ok());
    }
    Turns(1);
  }
  // The long prompt gets 4 tokens of each step, and one or two turns pass before its first step and
  // after its last one.
  EXPECT_TRUE(long_one.first);
  EXPECT_LE(next, 2u * (80 / 4 + 3));
  EXPECT_GT(next, 30u);
}

TEST_F(PrefillOrderTest, PromptsThatCanMeetTheirTtftGoFirst) {
  Start(128, {.chunk_tokens = 16});
  std::vector<Record> records(4);
  ASSERT_TRUE(Submit(Job(Prompt(120)), &records[0]).ok());
  Turns(4);
  ASSERT_TRUE(Submit(Job(Prompt(16)), &records[1]).ok());
  SubmitDue(Prompt(40), absl::Milliseconds(200), &records[2]);
  SubmitDue(Prompt(30), absl::Milliseconds(100), &records[3]);
  EXPECT_EQ(FirstTokens(records), (std::vector<int>{3, 2, 1, 0}));
}

TEST_F(PrefillOrderTest, APromptThatCanNotMeetItsTtftLetsOthersGoFirst) {
  Start(128, {.chunk_tokens = 16});
  std::vector<Record> records(4);
  ASSERT_TRUE(Submit(Job(Prompt(120)), &records[0]).ok());
  Turns(4);  // a step of 16 tokens takes 2 ms, so 30 tokens take almost 4 ms
  SubmitDue(Prompt(30), absl::Milliseconds(3), &records[1]);
  SubmitDue(Prompt(24), absl::Milliseconds(60), &records[2]);
  ASSERT_TRUE(Submit(Job(Prompt(20)), &records[3]).ok());
  EXPECT_EQ(FirstTokens(records), (std::vector<int>{2, 3, 1, 0}));
}

TEST_F(PrefillOrderTest, CachedTokensCountAsComputed) {
  Start();
  const auto known = Prompt(60);
  std::vector<Record> records(4);
  ASSERT_TRUE(Submit(Job(known), &records[0]).ok());
  Settle();
  ASSERT_TRUE(Submit(Job(Prompt(100)), &records[1]).ok());
  Turns(3);
  ASSERT_TRUE(Submit(Job(Prompt(24)), &records[2]).ok());
  ASSERT_TRUE(Submit(Job(Joined(known, Prompt(8))), &records[3]).ok());
  EXPECT_EQ(FirstTokens(records), (std::vector<int>{0, 3, 2, 1}));
}

TEST_F(PrefillOrderTest, APromptWhoseBlockAnotherOneWaitsForTakesThatOnesPlace) {
  Start(128, {.chunk_tokens = 16});
  const auto shared = Prompt(40);
  std::vector<Record> records(4);
  ASSERT_TRUE(Submit(Job(Prompt(120)), &records[0]).ok());
  Turns(3);
  ASSERT_TRUE(Submit(Job(Joined(shared, Prompt(30))), &records[1]).ok());
  Turns(2);  // computes 12 tokens of this prompt, and 4 of the oldest one
  ASSERT_TRUE(Submit(Job(Prompt(40)), &records[2]).ok());
  ASSERT_TRUE(Submit(Job(Joined(shared, Prompt(4))), &records[3]).ok());
  EXPECT_EQ(FirstTokens(records), (std::vector<int>{3, 1, 2, 0}));
  EXPECT_EQ(records[3].cached, 40);
}

TEST_F(PrefillOrderTest, TheOldestPromptGetsItsBlocksBeforeAllOthers) {
  Start(32);
  Record holder, long_one;
  const auto held = Submit(Job(Prompt(100)), &holder).value();  // takes 25 of 32 blocks
  Settle();
  ASSERT_TRUE(Submit(Job(Prompt(60)), &long_one).ok());  // needs 15 blocks
  std::vector<Record> short_ones(5);
  for (Record& record : short_ones) ASSERT_TRUE(Submit(Job(Prompt(20)), &record).ok());
  Settle();
  for (const Record& record : short_ones) EXPECT_FALSE(record.ticket);
  worker_->Cancel(held);
  Settle();
  EXPECT_TRUE(long_one.first);
  // 17 blocks are left for the prompts with 5 blocks each.
  EXPECT_EQ(std::count_if(short_ones.begin(), short_ones.end(),
                          [](const Record& record) { return record.first.has_value(); }),
            3);
}

}  // namespace
}  // namespace baton
