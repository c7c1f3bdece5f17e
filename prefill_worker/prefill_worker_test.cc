#include "prefill_worker/prefill_worker.h"

#include <random>

#include "common/engine/engine.h"
#include "common/engine/handover_note.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prefill_worker/prefill_harness.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(PrefillWorkerTest, ComputesThePromptAndHandsItOver) {
  Start();
  const auto prompt = Prompt(37);
  const auto expected = FakeContinuation(layout_, prompt, kVocab, 2);
  Record record;
  ASSERT_TRUE(Submit(Job(prompt), &record).ok());
  Settle();
  ASSERT_TRUE(record.first);
  EXPECT_EQ(record.first->token.id, expected[0]);
  EXPECT_EQ(record.first->token.position, 37);
  EXPECT_FALSE(record.first->finish);
  EXPECT_EQ(record.first->prefill, absl::Milliseconds(2 * 5));  // five chunks of up to 8 tokens
  EXPECT_FALSE(record.ended);
  EXPECT_EQ(worker_->Load().leases, 1);
  EXPECT_EQ(worker_->Load().steps, 5u);

  std::vector<BlockId> blocks = reader_pool_->Take(10).value();
  std::optional<PullResult> pulled;
  puller_->Start(*record.ticket, 0, blocks, [&](PullResult result) { pulled = result; });
  Settle();
  ASSERT_TRUE(pulled);
  ASSERT_TRUE(pulled->status.ok()) << pulled->status;
  const auto note = HandoverNote::Decode(pulled->payload).value();
  EXPECT_EQ(note.first_token.id, expected[0]);
  const auto reader_backend = CreateFakeBackend();
  const auto engine =
      Engine::Create(model_.get(), reader_backend.get(), {reader_->pool(), layout_}, 1).value();
  SamplingOptions greedy;
  const TokenId next[] = {note.first_token.id};
  EXPECT_EQ((*engine->Run({{{next, 37, blocks, &greedy, 37}}}))[0]->id, expected[1]);
  EXPECT_EQ(record.ended, absl::OkStatus());
  ExpectAllBack();
}

TEST_F(PrefillWorkerTest, TheTicketIsOutBeforeTheFirstChunkRuns) {
  Start();
  bool ticket_came_first = false;
  ASSERT_TRUE(worker_
                  ->Submit(Job(Prompt(8)),
                           [&](PrefillUpdate update) {
                             if (!std::holds_alternative<PrefillBegun>(update)) return;
                             ticket_came_first = spent_ == absl::ZeroDuration();
                           })
                  .ok());
  Settle();
  EXPECT_TRUE(ticket_came_first);
}

TEST_F(PrefillWorkerTest, ALongStepBeatsThePulseAfterEveryLayer) {
  Pulse pulse;
  Start(64, {.chunk_tokens = 16, .pulse = &pulse});
  Record record;
  ASSERT_TRUE(Submit(Job(Prompt(40)), &record).ok());
  Settle();
  EXPECT_TRUE(record.first);
  // The prompt of 40 tokens runs in chunks of 16, 16 and 8 tokens. Each chunk is a step, which
  // gives the pulse one beat after every layer.
  const uint64_t layers = 3u * static_cast<uint64_t>(layout_.layers);
  EXPECT_EQ(pulse.beats(), layers);
  // If logprobs of the prompt are wanted, the worker also calls Beat() after each group of up to 16
  // rows for which it computes them. Each chunk is one such group.
  Record scored;
  PrefillJob job = Job(Prompt(40));
  job.sampling.prompt_logprobs = 1;
  ASSERT_TRUE(Submit(job, &scored).ok());
  Settle();
  EXPECT_EQ(pulse.beats(), 2 * layers + 3);
}

TEST_F(PrefillWorkerTest, ShortPromptsShareAStepAndFillWhatALongOneLeaves) {
  Start(64, {.chunk_tokens = 16});
  std::vector<Record> records(6);
  ASSERT_TRUE(Submit(Job(Prompt(17)), &records[0]).ok());
  for (int i = 1; i < 6; ++i) ASSERT_TRUE(Submit(Job(Prompt(3)), &records[i]).ok());
  Settle();
  for (const Record& record : records) EXPECT_TRUE(record.first);
  EXPECT_EQ(worker_->Load().steps, 2u);  // 16 tokens in the first step, then 1 + 5 x 3
}

TEST_F(PrefillWorkerTest, TokensAreTheSameForEveryChunkAndCompany) {
  const auto prompt = Prompt(50);
  SamplingOptions sampling;
  sampling.temperature = 1.5f;
  sampling.seed = 4;
  sampling.max_tokens = 10;
  sampling.logprobs = 2;
  std::optional<SampledToken> first;
  for (const int chunk : {4, 12, 64}) {
    for (const int company : {0, 3}) {
      Start(64, {.chunk_tokens = chunk});
      std::vector<Record> others(company);
      for (Record& other : others)
        ASSERT_TRUE(Submit(Job(Prompt(random_() % 30 + 1)), &other).ok());
      Record record;
      PrefillJob job = Job(prompt);
      job.sampling = sampling;
      ASSERT_TRUE(Submit(job, &record).ok());
      Settle();
      if (!first) first = record.first->token;
      EXPECT_EQ(record.first->token.id, first->id);
      EXPECT_EQ(record.first->token.logprob, first->logprob);
      EXPECT_EQ(record.first->token.top.size(), 2u);
    }
  }
}

TEST_F(PrefillWorkerTest, NobodyOvertakesTheOldestOneWaitingForBlocks) {
  Start(32);
  Record large, waiting, small;
  const auto holder = Submit(Job(Prompt(100)), &large).value();  // takes 25 of 32 blocks
  Settle();
  ASSERT_TRUE(Submit(Job(Prompt(40)), &waiting).ok());  // needs 10 blocks; 7 are free
  ASSERT_TRUE(Submit(Job(Prompt(4)), &small).ok());     // would fit, but must not overtake
  Settle();
  EXPECT_FALSE(waiting.ticket);
  EXPECT_FALSE(small.ticket);
  EXPECT_EQ(worker_->Load().waiting, 2);
  EXPECT_EQ(worker_->Load().waiting_tokens, 44);
  worker_->Cancel(holder);
  Settle();
  EXPECT_TRUE(waiting.first);
  EXPECT_TRUE(small.first);
}

TEST_F(PrefillWorkerTest, RefusesWhatCanNeverWorkAndWhatDoesNotFitTheQueue) {
  Start(32, {.max_queue = 2});
  Record record;
  const auto refused = [&](PrefillJob job, absl::StatusCode code, const std::string& message) {
    const auto id = Submit(std::move(job), &record);
    EXPECT_EQ(id.status().code(), code) << id.status();
    EXPECT_THAT(id.status().message(), HasSubstr(message));
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  refused(Job({}), invalid, "0 tokens");
  refused(Job(Prompt(128)), invalid, "128");
  refused(Job({1, 2, 128}), invalid, "token 2 is 128");
  refused(Job({1, -1}), invalid, "token 1 is -1");
  PrefillJob job = Job({1, 2});
  job.original_prompt_tokens = 3;
  refused(job, invalid, "3 of 2");
  refused(Job({1}, 0), invalid, "max_tokens is 0");
  ASSERT_TRUE(Submit(Job({1}), &record).ok());
  Record second;
  ASSERT_TRUE(Submit(Job({1}), &second).ok());
  refused(Job({1}), absl::StatusCode::kResourceExhausted, "2 prompts wait");
  Settle();
  worker_->Drain();
  refused(Job({1}), absl::StatusCode::kUnavailable, "draining");
  EXPECT_TRUE(worker_->Load().draining);
  EXPECT_TRUE(record.first);
  EXPECT_EQ(worker_->jobs(), 2);
}

TEST_F(PrefillWorkerTest, SaysWhenTheFirstTokenEndsTheAnswer) {
  Start();
  const auto prompt = Prompt(9);
  const TokenId expected = FakeContinuation(layout_, prompt, kVocab, 1)[0];
  for (const bool by_stop : {false, true}) {
    PrefillJob job = Job(prompt, by_stop ? 10 : 1);
    if (by_stop) job.sampling.stop_tokens = {expected};
    Record record;
    const auto id = Submit(job, &record).value();
    Settle();
    EXPECT_EQ(record.first->token.id, expected);
    EXPECT_EQ(record.first->finish, by_stop ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_FALSE(record.ended);
    worker_->Cancel(id);
    Settle();
    EXPECT_TRUE(absl::IsCancelled(*record.ended));
    ExpectAllBack();
  }
}

TEST_F(PrefillWorkerTest, ARestartCountsFromTheOriginalPrompt) {
  Start();
  PrefillJob job = Job(Prompt(9), 4);
  job.original_prompt_tokens = 6;  // the last three tokens have been generated
  Record record;
  ASSERT_TRUE(Submit(job, &record).ok());
  job.original_prompt_tokens = 5;
  Record late;
  EXPECT_FALSE(Submit(job, &late).ok());
  Settle();
  EXPECT_EQ(record.first->finish, FinishReason::kLength);
  EXPECT_EQ(record.first->token.position, 9);
}

TEST_F(PrefillWorkerTest, APromptIsScoredChunkByChunkAmongOthersAsAlone) {
  std::vector<float> alone;
  const std::vector<TokenId> tokens = Prompt(30);
  for (const int company : {0, 3}) {
    for (const int original : {30, 21}) {
      Start();
      std::vector<Record> others(company);
      for (Record& other : others) ASSERT_TRUE(Submit(Job(Prompt(5)), &other).ok());
      PrefillJob job = Job(tokens, 20);
      job.original_prompt_tokens = original;
      job.sampling.prompt_logprobs = 2;
      Record record;
      ASSERT_TRUE(Submit(job, &record).ok());
      Settle();
      ASSERT_TRUE(record.first);
      ASSERT_EQ(record.prompt.size(), static_cast<size_t>(original));
      for (int i = 0; i < original; ++i) {
        const SampledToken& token = record.prompt[i];
        EXPECT_EQ(token.id, tokens[i]);
        EXPECT_EQ(token.position, i);
        EXPECT_EQ(token.logprob.has_value(), i > 0);
        EXPECT_EQ(token.top.size(), i > 0 ? 2u : 0u);
        if (alone.size() < 30) alone.push_back(token.logprob.value_or(0));
        EXPECT_EQ(token.logprob.value_or(0), alone[i]) << i;
      }
      for (const Record& other : others) EXPECT_TRUE(other.prompt.empty());
    }
  }
  Start();
  PrefillJob job = Job({1, 2, kPoison, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  job.sampling.prompt_logprobs = 0;
  Record poisoned;
  ASSERT_TRUE(Submit(job, &poisoned).ok());
  Settle();
  EXPECT_EQ(poisoned.ended->code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(poisoned.first);
  ExpectAllBack();
}

TEST_F(PrefillWorkerTest, AKvThatNobodyFetchesIsGivenUpWhenItsLeaseEnds) {
  Start();
  Record record;
  ASSERT_TRUE(Submit(Job(Prompt(9)), &record).ok());
  Settle();
  now_ += absl::Seconds(9);
  Settle();
  EXPECT_FALSE(record.ended);
  now_ += absl::Seconds(2);
  Settle();
  EXPECT_EQ(record.ended->code(), absl::StatusCode::kFailedPrecondition);
  ExpectAllBack();
}

TEST_F(PrefillWorkerTest, BadNumbersEndOnlyTheirOwnPrompt) {
  Start();
  Record poisoned, sound;
  ASSERT_TRUE(Submit(Job({1, 2, kPoison}), &poisoned).ok());
  ASSERT_TRUE(Submit(Job({1, 2, 3}), &sound).ok());
  Settle();
  EXPECT_EQ(poisoned.ended->code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(poisoned.first);
  EXPECT_TRUE(sound.first);
  EXPECT_EQ(worker_->Load().steps, 1u);
}

TEST_F(PrefillWorkerTest, SmallSlicesAreJoinedWithinAChunk) {
  const size_t chunk_layer = 2 * layout_.LayerBytes();
  for (const auto& [bytes, publishes] :
       {std::pair<size_t, int>{1, 2}, {chunk_layer, 2}, {chunk_layer + 1, 1}, {1 << 30, 1}}) {
    Start(64, {.slice_bytes = bytes});
    Record record;
    kv_calls_ = 0;
    ASSERT_TRUE(Submit(Job(Prompt(24)), &record).ok());
    Settle();
    // One call of Open, `publishes` calls for each of three chunks, and one call of Complete.
    EXPECT_EQ(kv_calls_, 1 + 3 * publishes + 1) << bytes;
  }
}

TEST_F(PrefillWorkerTest, CountsStepsPromptsAndHowTheirKvEnded) {
  PrefillMetrics metrics;
  Start(64, {.metrics = &metrics});
  Record records[3];
  const absl::StatusOr<PrefillWorker::JobId> read = Submit(Job(Prompt(20)), &records[0]);
  ASSERT_TRUE(read.ok());
  ASSERT_TRUE(Submit(Job(Prompt(8)), &records[1]).ok());
  const absl::StatusOr<PrefillWorker::JobId> given_up = Submit(Job(Prompt(8)), &records[2]);
  ASSERT_TRUE(given_up.ok());
  Settle();
  EXPECT_EQ(metrics.prompt_tokens.value(), 36u);
  EXPECT_EQ(metrics.step_tokens.Take().count, 5u);  // 36 tokens in steps of at most 8
  EXPECT_EQ(metrics.step_tokens.Take().sum, 36);
  EXPECT_EQ(metrics.step_prompts.Take().count, 5u);
  EXPECT_EQ(metrics.step_seconds.Take().count, 5u);
  EXPECT_DOUBLE_EQ(metrics.step_seconds.Take().sum, 5 * 0.002);
  EXPECT_EQ(metrics.queue_seconds.Take().count, 3u);
  double prefill = 0;
  for (const Record& record : records) prefill += absl::ToDoubleSeconds(record.first->prefill);
  EXPECT_DOUBLE_EQ(metrics.prefill_seconds.Take().sum, prefill);
  EXPECT_EQ(metrics.held.value(), 3);
  EXPECT_EQ(metrics.computing.value(), 0);

  std::vector<BlockId> blocks = reader_pool_->Take(5).value();
  puller_->Start(*records[0].ticket, 0, blocks, [](PullResult) {});
  worker_->Cancel(*given_up);
  Settle();
  EXPECT_EQ(metrics.held.value(), 1);
  now_ += absl::Hours(1);  // no reader comes for the second job
  Settle();
  EXPECT_EQ(metrics.read.value(), 1u);
  EXPECT_EQ(metrics.cancelled.value(), 1u);
  EXPECT_EQ(metrics.expired.value(), 1u);
  EXPECT_EQ(metrics.failed.value(), 0u);
  EXPECT_EQ(metrics.held.value() + metrics.computing.value() + metrics.ending.value(), 0);
}

// Cancels jobs at random moments, while worker and KV thread run in random order. Every job must
// end once, and all blocks must come back.
TEST_F(PrefillWorkerTest, CancelAtAnyMomentGivesEverythingBackOnce) {
  int cancelled = 0, too_late = 0;
  for (int seed = 0; seed < 60; ++seed) {
    Start(40, {.chunk_tokens = 8, .reuse_last_freed = true});
    std::mt19937 random(seed);
    std::vector<Record> records(4);
    std::vector<PrefillWorker::JobId> ids;
    for (Record& record : records) {
      const int max_tokens = random() % 4 == 0 ? 1 : 10;
      ids.push_back(Submit(Job(Prompt(random() % 60 + 1), max_tokens), &record).value());
    }
    std::vector<int> cancel_at;
    for (int i = 0; i < 4; ++i) cancel_at.push_back(random() % 40);
    std::vector<bool> pulling(4);
    for (int turn = 0; turn < 200; ++turn) {
      for (int i = 0; i < 4; ++i) {
        if (turn == cancel_at[i]) worker_->Cancel(ids[i]);
        if (records[i].ticket && !pulling[i] && random() % 3 == 0) {
          pulling[i] = true;
          const auto blocks = reader_pool_->Take(records[i].ticket->blocks.size());
          if (!blocks.ok()) continue;
          puller_->Start(*records[i].ticket, 0, *blocks,
                         [this, blocks = *blocks](PullResult) { reader_pool_->Release(blocks); });
        }
      }
      if (random() % 2 == 0) {
        KvTurn();
      } else {
        WorkerTurn();
      }
    }
    Settle();
    for (const Record& record : records) {
      ASSERT_TRUE(record.ended) << "seed " << seed;
      ++(absl::IsCancelled(*record.ended) ? cancelled : too_late);
    }
    ExpectAllBack();
    now_ += absl::Seconds(10);
    Settle();
    EXPECT_EQ(reader_pool_->free_blocks(), 64) << "seed " << seed;
  }
  EXPECT_GT(cancelled, 30);
  EXPECT_GT(too_late, 30);
}

TEST_F(PrefillWorkerTest, RefusesOptionsThatDoNotFit) {
  Start();
  const auto create = [&](PrefillWorker::Options options) {
    return PrefillWorker::Create(options, model_.get(), backend_.get(), owner_.get(),
                                 publisher_.get(), [](const std::function<void()>&) {})
        .status();
  };
  EXPECT_THAT(create({.chunk_tokens = 6}).message(), HasSubstr("multiple of 4"));
  EXPECT_THAT(create({.context = 129}).message(), HasSubstr("128"));
  EXPECT_THAT(create({.max_queue = 0}).message(), HasSubstr("max_queue is 0"));
  worker_.reset();
  auto transport = fabric_.CreateTransport();
  auto small = KvPlane::Create(transport.get(), {.epoch = 3, .layout = layout_, .blocks = 31});
  EXPECT_THAT(PrefillWorker::Create({}, model_.get(), backend_.get(), small->get(),
                                    publisher_.get(), [](const std::function<void()>&) {})
                  .status()
                  .message(),
              HasSubstr("needs 32 KV blocks"));
}

}  // namespace
}  // namespace baton
