#include <map>

#include "absl/strings/match.h"
#include "decode_worker/decode_harness.h"

// Tests with backends that sample on the device. The host plans each step before it knows the
// tokens of the step before.
namespace baton {
namespace {

using ::testing::HasSubstr;

class BehindTest : public DecodeWorkerTest {
 protected:
  void OneTurn() {
    KvTurn();
    WorkerTurn();
  }
  DecodeMetrics metrics_;
};

TEST_P(BehindTest, AStepIsStartedBeforeTheOneBeforeIsKnown) {
  Start(64, {.metrics = &metrics_});
  const auto handover = Ready(37);
  Record record;
  ASSERT_TRUE(Submit(Job(*handover), &record).ok());
  Settle();
  EXPECT_EQ(record.ids(), handover->answer);
  // The owner of the KV sampled the first of the 20 tokens, so 19 steps follow. It is known in
  // advance which token is the last, so no step is started for a token after it.
  EXPECT_EQ(late_->started(), 19u);
  EXPECT_EQ(late_->started_ahead(), 18u);
  EXPECT_EQ(late_->rows_ahead(), 18u);
  EXPECT_EQ(record.finished->decode, absl::Milliseconds(2 * 19));
  EXPECT_EQ(metrics_.steps_ahead.value(), 18u);
  EXPECT_EQ(metrics_.surplus_tokens.value(), 0u);
  EXPECT_EQ(metrics_.step_seconds.Take().count, 19u);
  EXPECT_DOUBLE_EQ(metrics_.step_seconds.Take().sum, 0.002 * 19);
  ExpectAllBack();
}

TEST_P(BehindTest, APromptThatIsComputedHereGoesOnWithoutWaitingForItsFirstToken) {
  Start(64, {.chunk_tokens = 16});
  const Prompt prompt = Colocated(53, 10);
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  Settle();
  EXPECT_EQ(record.ids(), prompt.answer);
  EXPECT_EQ(late_->started(), 4u + 9);
  EXPECT_EQ(late_->started_ahead(), 4u + 9 - 1);
  EXPECT_EQ(late_->rows_ahead(), 9u);
  EXPECT_EQ(record.finished->decode_wait, absl::ZeroDuration());
  // The backend kLate may run part of a step before the previous step has been finished. The time
  // of this part counts for the previous step. So the sum is exact only for kLatest, which runs no
  // part of a step early.
  if (backends_ == Backends::kLatest) {
    EXPECT_EQ(record.finished->decode, absl::Milliseconds(2 * 9));
  }
}

TEST_P(BehindTest, ASequenceThatStopsHasOneStepTooManyWhoseTokenNobodySees) {
  Start(64, {.metrics = &metrics_});
  auto handover = Ready(37);
  DecodeJob job = Job(*handover);
  const TokenId stop = handover->answer[6];
  job.sampling.stop_tokens = {stop};
  const size_t length = std::find(handover->answer.begin(), handover->answer.end(), stop) -
                        handover->answer.begin() + 1;
  ASSERT_GT(length, 1u);
  Record record;
  ASSERT_TRUE(Submit(job, &record).ok());
  while (!record.ended) OneTurn();
  ASSERT_TRUE(record.ended->ok());
  EXPECT_EQ(record.ids().size(), length);
  EXPECT_EQ(record.finished->stop_token, stop);
  // The step after the stop token was started before that token was known. It is still running, and
  // writes to the blocks of the sequence.
  EXPECT_EQ(late_->started(), length);
  EXPECT_EQ(worker_->jobs(), 0);
  EXPECT_EQ(worker_->Load().running, 0);
  EXPECT_EQ(worker_->Load().free_blocks, 64 - 11);
  Settle();
  EXPECT_EQ(record.ids().size(), length);
  EXPECT_EQ(worker_->Load().steps, length);
  EXPECT_EQ(metrics_.generated_tokens.value(), length - 1);
  EXPECT_EQ(metrics_.step_sequences.Take().sum, length - 1.0);
  EXPECT_EQ(metrics_.surplus_tokens.value(), 1u);
  EXPECT_EQ(metrics_.step_sequences.Take().count, length - 1);
  ExpectAllBack();
}

// Blocks that are freed last are reused first. So the next sequence would get the blocks of the
// cancelled one as soon as they are freed. If a step of the cancelled sequence were still running,
// it would overwrite the KV of the next sequence.
TEST_P(BehindTest, BlocksOfACancelledSequenceAreGivenToNobodyWhileItsStepRuns) {
  Start(13, {.context = 48, .reuse_last_freed = true});
  const auto first = Ready(21), second = Ready(40);  // first needs 6 + 1 blocks, second 10 + 1
  Record records[3];
  const auto id = Submit(Job(*first), &records[0]).value();
  while (records[0].tokens.size() < 4) OneTurn();
  worker_->Cancel(id);
  ASSERT_TRUE(Submit(Job(*second, 8), &records[1]).ok());
  WorkerTurn();
  EXPECT_EQ(records[0].ended->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(records[1].ended->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(worker_->Load().free_blocks, 13 - 7);
  Settle();
  EXPECT_EQ(worker_->Load().free_blocks, 13);
  ASSERT_TRUE(Submit(Job(*second, 8), &records[2]).ok());
  Settle();
  ASSERT_TRUE(records[2].ended->ok());
  EXPECT_EQ(records[2].ids(),
            std::vector<TokenId>(second->answer.begin(), second->answer.begin() + 8));
  ExpectAllBack();
}

// A cancelled pull will soon give its blocks back, so no sequence is preempted to free blocks. A
// sequence that needs no new block goes on.
TEST_P(BehindTest, WhileACancelledPullHoldsTheLastBlocksTheOthersKeepTheirPace) {
  Start(13, {.context = 48});
  const auto pulled = Open(5), other = Open(1);  // pulled needs 2 + 1 blocks, other 1 + 1
  const Prompt starved = Colocated(15, 12), goes_on = Colocated(1, 8);
  Record records[4];
  const auto id = Submit(Job(*pulled), &records[0]).value();
  ASSERT_TRUE(Submit(Job(*other), &records[3]).ok());
  ASSERT_TRUE(
      Submit(starved.job, &records[1]).ok());  // needs 4 + 1 blocks, and 1 for each 4 tokens
  while (records[1].tokens.size() < 3) OneTurn();
  const auto other_id = Submit(goes_on.job, &records[2]).value();
  while (records[2].tokens.empty()) OneTurn();
  worker_->SetPaused(other_id, true);
  while (records[1].tokens.size() < 8) OneTurn();
  worker_->SetPaused(other_id, false);
  worker_->Cancel(id);
  // The test does not run the KV thread here, so the cancelled pull does not end. The loop stops
  // when the KV of the first prompt has 24 tokens, which fill 6 blocks.
  while (records[1].tokens.size() < 10) WorkerTurn();
  ASSERT_EQ(worker_->Load().free_blocks, 0);
  for (int i = 0; i < 3; ++i) {
    const uint64_t started = late_->started();
    WorkerTurn();
    EXPECT_EQ(late_->started(), started + 1) << i;
  }
  worker_->SetPaused(other_id, true);
  for (int i = 0; i < 3; ++i) WorkerTurn();
  EXPECT_EQ(records[1].tokens.size(), 10u);
  EXPECT_FALSE(records[1].ended);
  worker_->SetPaused(other_id, false);
  Settle();
  EXPECT_EQ(records[0].ended->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(records[1].ids(), starved.answer);
  EXPECT_EQ(records[2].ids(), goes_on.answer);
  Complete(*other);
  Settle();
  EXPECT_EQ(records[3].ids(), other->answer);
  ExpectAllBack();
}

TEST_P(BehindTest, APausedSequenceGetsAtMostTheTokensOfTheStepsThatRun) {
  Start();
  const auto handover = Ready(5);
  Record record;
  const auto id = Submit(Job(*handover), &record).value();
  while (record.tokens.size() < 5) OneTurn();
  worker_->SetPaused(id, true);
  Settle();
  EXPECT_LE(record.tokens.size(), 7u);
  EXPECT_EQ(worker_->Load().waiting, 1);
  worker_->SetPaused(id, false);
  Settle();
  EXPECT_EQ(record.ids(), handover->answer);
  ExpectAllBack();
}

// Each step is planned while the step before it still runs. The latest token of a sequence whose
// tokens the host samples is not known at that time, so this sequence is in every second step only.
// The other sequences are in every step.
TEST_P(BehindTest, WhatTheHostSamplesIsPlannedWhenItIsKnown) {
  Start(128);
  const Prompt ahead = Colocated(9, 60);
  Prompt looks_back = Colocated(11, 12);
  looks_back.job.sampling.bad_words = {{1, 2}};
  Record first, second;
  ASSERT_TRUE(Submit(ahead.job, &first).ok());
  while (first.tokens.size() < 5) OneTurn();
  ASSERT_TRUE(Submit(looks_back.job, &second).ok());
  while (second.tokens.empty()) OneTurn();
  const uint64_t rows = late_->rows_ahead(), steps = late_->started();
  while (!second.ended) OneTurn();
  EXPECT_EQ(late_->rows_ahead() - rows, late_->started() - steps);
  EXPECT_GE(late_->started() - steps, 20u);
  EXPECT_LE(late_->started() - steps, 23u);
  Settle();
  EXPECT_EQ(first.ids(), ahead.answer);
  EXPECT_EQ(second.ids().size(), 12u);
  EXPECT_EQ(late_->started_ahead(), late_->started() - 1);
  ExpectAllBack();
}

// The host, not the device, samples the tokens of the cancelled sequence. The data that sampling
// needs must live until the step with that sequence has ended.
TEST_P(BehindTest, OneThatTheHostSamplesForIsCancelledWhileItsStepRuns) {
  for (int turns = 0; turns < 12; ++turns) {
    Start(128);
    const Prompt ahead = Colocated(9, 40);
    Prompt looks_back = Colocated(11, 30);
    looks_back.job.sampling.bad_words = {{1, 2}, {3, 4, 5}};
    Record first, second;
    ASSERT_TRUE(Submit(ahead.job, &first).ok());
    const auto id = Submit(looks_back.job, &second).value();
    for (int i = 0; i < turns; ++i) OneTurn();
    worker_->Cancel(id);
    Settle();
    EXPECT_EQ(second.ended->code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(first.ids(), ahead.answer);
    ExpectAllBack();
  }
}

// While a prompt with logprobs is computed, the worker shows its progress (Pulse::Beat) after each
// layer. This needs no device events, so the backend must not be asked to record any.
TEST_P(BehindTest, LogprobsOfAPromptAreFoundBetweenSteps) {
  Pulse pulse;
  Start(128, {.chunk_tokens = 8, .pulse = &pulse});
  const Prompt ahead = Colocated(9, 60);
  Prompt scored = Colocated(21, 4);
  scored.job.sampling.prompt_logprobs = 1;
  Record first, second;
  ASSERT_TRUE(Submit(ahead.job, &first).ok());
  while (first.tokens.size() < 5) OneTurn();
  const uint64_t beats = pulse.beats();
  ASSERT_TRUE(Submit(scored.job, &second).ok());
  while (second.prompt.empty()) OneTurn();
  EXPECT_GT(pulse.beats() - beats, 2u * layout_.layers);
  Settle();
  EXPECT_EQ(first.ids(), ahead.answer);
  EXPECT_EQ(second.ids(), scored.answer);
  EXPECT_EQ(second.prompt.size(), 21u);
  EXPECT_GT(late_->rows_ahead(), 40u);
  EXPECT_EQ(late_->events(), 0u);
  ExpectAllBack();
}

TEST_P(BehindTest, AStepThatIsNotTakenEndsThoseWhoWereToBeInIt) {
  failing_start_ = 6;
  Start(64, {.chunk_tokens = 8});
  const Prompt one = Colocated(9), two = Colocated(30), three = Colocated(5);
  Record records[4];
  ASSERT_TRUE(Submit(one.job, &records[0]).ok());
  while (worker_->Load().steps < 5) OneTurn();
  ASSERT_TRUE(Submit(two.job, &records[1]).ok());
  OneTurn();
  EXPECT_EQ(worker_->Load().steps, 5u);
  ASSERT_TRUE(Submit(three.job, &records[2]).ok());
  Settle();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].ended->code(), absl::StatusCode::kInternal);
    EXPECT_THAT(records[i].ended->message(), HasSubstr("the device takes no step"));
  }
  EXPECT_TRUE(std::equal(records[0].tokens.begin(), records[0].tokens.end(), one.answer.begin(),
                         [](const SampledToken& token, TokenId id) { return token.id == id; }));
  EXPECT_EQ(records[2].ids(), three.answer);
  EXPECT_EQ(worker_->Load().waiting_tokens, 0);
  ExpectAllBack();
  ASSERT_TRUE(Submit(one.job, &records[3]).ok());
  Settle();
  EXPECT_EQ(records[3].ids(), one.answer);
}

// In each round another step fails to start. It may contain chunks of prompts, sequences that
// generate, or both.
TEST_P(BehindTest, WhicheverStepIsNotTakenTheOthersAreRight) {
  for (int failing = 1; failing <= 16; ++failing) {
    SCOPED_TRACE(failing);
    failing_start_ = failing;
    Start(64, {.chunk_tokens = 8});
    const auto handover = Ready(13);
    const Prompt one = Colocated(9), two = Colocated(30);
    Record records[3], again;
    ASSERT_TRUE(Submit(one.job, &records[0]).ok());
    for (int i = 0; i < 3; ++i) OneTurn();
    ASSERT_TRUE(Submit(two.job, &records[1]).ok());
    ASSERT_TRUE(Submit(Job(*handover), &records[2]).ok());
    Settle();
    int failed = 0;
    const std::vector<TokenId>* const answers[] = {&one.answer, &two.answer, &handover->answer};
    for (int i = 0; i < 3; ++i) {
      const auto ids = records[i].ids();
      ASSERT_LE(ids.size(), answers[i]->size());
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), answers[i]->begin())) << i;
      if (records[i].ended->ok()) {
        EXPECT_EQ(ids.size(), answers[i]->size()) << i;
        continue;
      }
      ++failed;
      EXPECT_THAT(records[i].ended->message(), HasSubstr("the device takes no step"));
    }
    EXPECT_GE(failed, 1);
    EXPECT_EQ(worker_->Load().waiting_tokens, 0);
    ExpectAllBack();
    ASSERT_TRUE(Submit(two.job, &again).ok());
    Settle();
    EXPECT_EQ(again.ids(), two.answer);
  }
}

TEST_P(BehindTest, AStepThatFailsEndsThoseWhoWereInItAndNobodyElse) {
  failing_step_ = 5;
  Start();
  const Prompt one = Colocated(9), two = Colocated(9);
  Record first, second, third;
  ASSERT_TRUE(Submit(one.job, &first).ok());
  while (worker_->Load().steps < 5) OneTurn();
  ASSERT_TRUE(Submit(two.job, &second).ok());
  Settle();
  EXPECT_EQ(first.ended->code(), absl::StatusCode::kInternal);
  EXPECT_THAT(first.ended->message(), HasSubstr("the device has failed"));
  EXPECT_EQ(first.ids(), std::vector<TokenId>(one.answer.begin(), one.answer.begin() + 4));
  EXPECT_EQ(second.ids(), two.answer);
  ExpectAllBack();
  ASSERT_TRUE(Submit(one.job, &third).ok());
  Settle();
  EXPECT_EQ(third.ids(), one.answer);
}

TEST_P(BehindTest, AWorkerThatGoesWaitsForItsSteps) {
  Start();
  const auto handover = Ready(21);
  Record record;
  ASSERT_TRUE(Submit(Job(*handover), &record).ok());
  while (record.tokens.size() < 3) OneTurn();
  EXPECT_FALSE(record.ended);
  Stop();
}

// Gives the same random requests to a worker with a plain backend and to one whose backend samples
// on the device, and compares the answers.
class BehindPropertyTest : public BehindTest {
 protected:
  struct Asked {
    bool ticket = false;
    int prompt = 1;
    SamplingOptions sampling;
    int turn = 0;                // turn of the worker in which the request is submitted
    size_t cancel_at = 1 << 20;  // number of tokens after which the request is cancelled
    // Once the request has this number of tokens, the test pauses it from time to time.
    size_t pause_at = 1 << 20;
  };

  std::vector<Asked> MakeRequests(int seed, int count) {
    std::mt19937 random(seed);
    const auto one_of = [&random](int n) { return static_cast<int>(random() % n); };
    std::vector<Asked> all(count);
    int turn = 0;
    for (Asked& asked : all) {
      asked.ticket = one_of(2) == 0;
      asked.prompt = one_of(60) + 1;
      asked.turn = turn += one_of(6);
      if (one_of(6) == 0) asked.cancel_at = one_of(12);
      if (one_of(6) == 0) asked.pause_at = one_of(12);
      SamplingOptions& sampling = asked.sampling;
      sampling.max_tokens = one_of(8) == 0 ? 1000 : one_of(30) + 1;
      for (int i = one_of(8); i > 0; --i) {
        sampling.stop_tokens.push_back(static_cast<TokenId>(random() % kVocab));
      }
      if (one_of(3) == 0) sampling.min_tokens = one_of(10);
      if (one_of(2) == 0) sampling.logprobs = one_of(3);
      if (one_of(2) == 0) {
        sampling.temperature = 0.5f * static_cast<float>(one_of(4) + 1);
        sampling.seed = random();
        if (one_of(2) == 0) sampling.top_k = one_of(20) + 1;
        if (one_of(2) == 0) sampling.top_p = 0.7f;
        if (one_of(3) == 0) sampling.min_p = 0.05f;
      }
      if (one_of(4) == 0) sampling.logit_bias = {{one_of(64), 9.0f}, {64 + one_of(64), -9.0f}};
      if (one_of(4) == 0) sampling.bad_words = {{one_of(kVocab)}};
      if (one_of(8) == 0) sampling.bad_words.push_back({one_of(kVocab), one_of(kVocab)});
      if (one_of(5) == 0) sampling.frequency_penalty = 0.7f;
      if (one_of(5) == 0) sampling.repetition_penalty = 1.2f;
      if (!asked.ticket && one_of(8) == 0) sampling.prompt_logprobs = 1;
      // One request in ten excludes every token: for the whole answer if `nothing` is 0, for the
      // first three tokens of the answer if it is 1.
      const int nothing = one_of(20);
      for (TokenId id = 0; nothing < 2 && id < kVocab; ++id) {
        if (nothing == 0) sampling.bad_words.push_back({id});
        if (nothing == 1) sampling.stop_tokens.push_back(id);
      }
      if (nothing == 1) sampling.min_tokens = 3;
    }
    return all;
  }

  // Answers all requests with a new worker. The prompts depend only on `seed`.
  std::vector<Record> Answer(Backends backends, int seed, const std::vector<Asked>& all, int blocks,
                             DecodeWorker::Options options) {
    backends_ = backends;
    random_.seed(seed);
    Start(blocks, std::move(options));
    std::vector<std::unique_ptr<Handover>> handovers(all.size());
    std::vector<DecodeJob> jobs;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].ticket) handovers[i] = Ready(all[i].prompt, 1);
      jobs.push_back(all[i].ticket ? Job(*handovers[i]) : Colocated(all[i].prompt, 1).job);
      jobs.back().sampling = all[i].sampling;
    }
    std::vector<Record> records(all.size());
    std::map<size_t, DecodeWorker::JobId> running;
    size_t next = 0;
    for (int turn = 0; next < all.size() || !running.empty(); ++turn) {
      EXPECT_LT(turn, 20'000);
      if (turn >= 20'000) break;
      for (; next < all.size() && all[next].turn <= turn; ++next) {
        running[next] = Submit(jobs[next], &records[next]).value();
      }
      std::erase_if(running, [&](const auto& one) {
        const auto& [i, id] = one;
        if (records[i].ended) return true;
        if (records[i].tokens.size() >= all[i].cancel_at) worker_->Cancel(id);
        if (records[i].tokens.size() >= all[i].pause_at) {
          worker_->SetPaused(id, turn % 32 < 5);
        }
        return false;
      });
      KvTurn();
      WorkerTurn();
    }
    Settle();
    ExpectAllBack();
    return records;
  }

  static void ExpectSame(const SampledToken& one, const SampledToken& other) {
    EXPECT_EQ(one.id, other.id);
    EXPECT_EQ(one.position, other.position);
    EXPECT_EQ(one.logprob, other.logprob);
    ASSERT_EQ(one.top.size(), other.top.size());
    for (size_t i = 0; i < one.top.size(); ++i) {
      EXPECT_EQ(one.top[i].id, other.top[i].id);
      EXPECT_EQ(one.top[i].logprob, other.top[i].logprob);
    }
  }
  static void ExpectSameBeginning(const std::vector<SampledToken>& one,
                                  const std::vector<SampledToken>& other) {
    for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) ExpectSame(one[i], other[i]);
  }
};

TEST_P(BehindPropertyTest, AnswersAreThoseOfThePlainLoop) {
  int stopped = 0, cancelled = 0, refused = 0;
  uint64_t ahead = 0;
  for (int seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const auto all = MakeRequests(seed, 24);
    const DecodeWorker::Options options = {
        .max_batch = 6, .chunk_tokens = 24, .reuse_last_freed = true};
    const auto plain = Answer(Backends::kPlain, seed, all, 1024, options);
    const auto behind = Answer(GetParam(), seed, all, 1024, options);
    ahead += late_->rows_ahead();
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSameBeginning(plain[i].tokens, behind[i].tokens);
      ExpectSameBeginning(plain[i].prompt, behind[i].prompt);
      if (!plain[i].ended->ok() || !behind[i].ended->ok()) {
        const bool by_cancel =
            absl::IsCancelled(*plain[i].ended) || absl::IsCancelled(*behind[i].ended);
        if (by_cancel) {
          EXPECT_LT(all[i].cancel_at, 1u << 20) << *plain[i].ended << *behind[i].ended;
        } else {
          EXPECT_EQ(plain[i].ended->code(), absl::StatusCode::kInvalidArgument);
          EXPECT_EQ(*plain[i].ended, *behind[i].ended);
          EXPECT_EQ(plain[i].tokens.size(), behind[i].tokens.size());
        }
        ++(by_cancel ? cancelled : refused);
        continue;
      }
      EXPECT_EQ(plain[i].tokens.size(), behind[i].tokens.size());
      EXPECT_EQ(plain[i].prompt.size(), behind[i].prompt.size());
      EXPECT_EQ(plain[i].finished->reason, behind[i].finished->reason);
      EXPECT_EQ(plain[i].finished->stop_token, behind[i].finished->stop_token);
      stopped += plain[i].finished->reason == FinishReason::kStop;
    }
  }
  EXPECT_GT(stopped, 50);
  EXPECT_GT(cancelled, 10);
  EXPECT_GT(refused, 10);
  EXPECT_GT(ahead, 500u);
}

TEST_P(BehindPropertyTest, SoAreTheyWhereBlocksRunOut) {
  int preempted = 0, finished = 0;
  uint64_t ahead = 0;
  for (int seed = 100; seed < 112; ++seed) {
    SCOPED_TRACE(seed);
    const auto all = MakeRequests(seed, 24);
    const DecodeWorker::Options options = {
        .max_batch = 6, .chunk_tokens = 24, .reuse_last_freed = true};
    const auto plain = Answer(Backends::kPlain, seed, all, 1024, options);
    const auto behind = Answer(GetParam(), seed, all, 40, options);
    ahead += late_->rows_ahead();
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSameBeginning(plain[i].tokens, behind[i].tokens);
      if (behind[i].ended->ok()) {
        ++finished;
        if (plain[i].ended->ok()) {
          EXPECT_EQ(plain[i].tokens.size(), behind[i].tokens.size());
        }
      } else if (absl::IsResourceExhausted(*behind[i].ended)) {
        preempted += absl::StrContains(behind[i].ended->message(), "preempted");
      } else if (!absl::IsCancelled(*behind[i].ended)) {
        EXPECT_EQ(behind[i].ended->code(), absl::StatusCode::kInvalidArgument);
        if (!absl::IsCancelled(*plain[i].ended)) {
          EXPECT_EQ(*behind[i].ended, *plain[i].ended);
        }
      }
    }
  }
  EXPECT_GT(preempted, 5);
  EXPECT_GT(finished, 60);
  EXPECT_GT(ahead, 300u);
}

INSTANTIATE_TEST_SUITE_P(Backends, BehindTest,
                         ::testing::Values(Backends::kLatest, Backends::kLate), BackendsName);
INSTANTIATE_TEST_SUITE_P(Backends, BehindPropertyTest,
                         ::testing::Values(Backends::kLatest, Backends::kLate), BackendsName);

}  // namespace
}  // namespace baton
