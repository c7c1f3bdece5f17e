#include "decode_worker/decode_metrics.h"

#include "decode_worker/decode_harness.h"

namespace baton {
namespace {

class DecodeMetricsTest : public DecodeWorkerTest {
 protected:
  static uint64_t Pulls(const DecodeMetrics& metrics, absl::StatusCode code) {
    return metrics.pulls[static_cast<int>(code)].value();
  }
  DecodeMetrics metrics_;
};

TEST_P(DecodeMetricsTest, StepsTokensAndPullsAreCounted) {
  Start(64, {.metrics = &metrics_});
  const auto one = Ready(37), two = Ready(5);
  Record first, second;
  ASSERT_TRUE(Submit(Job(*one), &first).ok());
  ASSERT_TRUE(Submit(Job(*two), &second).ok());
  Settle();
  ASSERT_TRUE(first.finished && second.finished);
  // The prefill worker sampled the first of the twenty tokens of each answer.
  EXPECT_EQ(metrics_.generated_tokens.value(), 2u * 19);
  const Histogram::Snapshot batch = metrics_.step_sequences.Take();
  EXPECT_EQ(batch.count, worker_->Load().steps);
  EXPECT_EQ(batch.sum, 2.0 * 19);
  const Histogram::Snapshot seconds = metrics_.step_seconds.Take();
  EXPECT_EQ(seconds.count, batch.count);
  EXPECT_DOUBLE_EQ(seconds.sum, 0.002 * double(batch.count));
  EXPECT_EQ(metrics_.prompt_tokens.value(), 0u);
  EXPECT_EQ(metrics_.step_prompt_tokens.Take().count, 0u);
  EXPECT_EQ(Pulls(metrics_, absl::StatusCode::kOk), 2u);
  EXPECT_EQ(metrics_.pull_hidden.Take().count, 2u);
  EXPECT_EQ(metrics_.pull_exposed.Take().count, 2u);
  const uint64_t bytes = metrics_.pulled_bytes[LinkIndex("inproc")].value();
  // A pull reads all slices of the prompt, and perhaps also checksums and generations.
  EXPECT_GE(bytes, (layout_.BlocksFor(37) + layout_.BlocksFor(5)) * layout_.BlockBytes());
  EXPECT_EQ(metrics_.pulled_bytes[LinkIndex("tcp")].value(), 0u);
  EXPECT_EQ(metrics_.preemptions.value(), 0u);
}

TEST_P(DecodeMetricsTest, PromptsThatAreComputedHereAreCountedByChunks) {
  Start(64, {.chunk_tokens = 16, .metrics = &metrics_});
  const Prompt prompt = Colocated(53);
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  Settle();
  ASSERT_TRUE(record.finished);
  EXPECT_EQ(metrics_.prompt_tokens.value(), 53u);
  // The chunks have 16, 16, 16 and 5 tokens.
  EXPECT_EQ(metrics_.step_prompt_tokens.Take().count, 4u);
  EXPECT_EQ(metrics_.generated_tokens.value(), 20u);
  EXPECT_EQ(metrics_.step_sequences.Take().count, 19u);
  EXPECT_EQ(metrics_.step_seconds.Take().count, 4u + 19);
}

TEST_P(DecodeMetricsTest, PreemptionsAndPullsThatFailAreCounted) {
  Start(32, {.metrics = &metrics_});
  std::vector<std::unique_ptr<Handover>> handovers;
  Record records[3];
  for (int i = 0; i < 3; ++i) {  // each needs 8 + 1 blocks at first, up to 23 later
    handovers.push_back(Ready(32, 60));
    ASSERT_TRUE(Submit(Job(*handovers[i], 60), &records[i]).ok());
  }
  Settle();
  EXPECT_EQ(metrics_.preemptions.value(), 2u);
  Record stranger;
  const auto handover = Ready(8);
  DecodeJob job = Job(*handover);
  job.ticket->handover_id += 1;  // a hand-over that the owner does not know
  ASSERT_TRUE(Submit(job, &stranger).ok());
  Settle();
  ASSERT_TRUE(stranger.ended);
  EXPECT_EQ(Pulls(metrics_, stranger.ended->code()), 1u) << *stranger.ended;
}

TEST(LinkNamesTest, WhatIsNotListedIsOther) {
  EXPECT_EQ(kLinkNames[LinkIndex("shm")], "shm");
  EXPECT_EQ(kLinkNames[LinkIndex("carrier pigeon")], "other");
  EXPECT_EQ(kLinkNames[LinkIndex("")], "other");
}

BATON_ALL_BACKENDS(DecodeMetricsTest);

}  // namespace
}  // namespace baton
