#include "decode_worker/decode_worker.h"

#include "decode_worker/decode_harness.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_P(DecodeWorkerTest, TakesOverAndGoesOnWithTheSameTokens) {
  Start();
  const auto handover = Ready(37);
  Record record;
  ASSERT_TRUE(Submit(Job(*handover), &record).ok());
  Settle();
  EXPECT_EQ(record.ids(), handover->answer);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(record.tokens[i].position, 37 + i);
  EXPECT_EQ(record.finished->reason, FinishReason::kLength);
  EXPECT_FALSE(record.finished->stop_token);
  EXPECT_EQ(record.finished->link, "inproc");
  EXPECT_EQ(record.finished->decode, absl::Milliseconds(2 * 19));
  EXPECT_EQ(record.ended, absl::OkStatus());
  EXPECT_EQ(handover->ended, absl::OkStatus());
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, EverySequenceOfABatchIsAnsweredAsAlone) {
  Start(256, {.max_batch = 5});
  std::vector<std::unique_ptr<Handover>> handovers;
  std::vector<Record> records(12);
  for (Record& record : records) {
    handovers.push_back(Ready(random_() % 60 + 1));
    DecodeJob job = Job(*handovers.back());
    if (random_() % 2) job.sampling.stop_tokens = {handovers.back()->answer[random_() % 20]};
    ASSERT_TRUE(Submit(job, &record).ok());
    for (int i = random_() % 5; i > 0; --i) {
      WorkerTurn();
      KvTurn();
    }
  }
  Settle();
  for (int i = 0; i < 12; ++i) {
    const auto& answer = handovers[i]->answer;
    ASSERT_TRUE(records[i].finished) << *records[i].ended;
    const std::vector<TokenId> ids = records[i].ids();
    EXPECT_EQ(ids, std::vector<TokenId>(answer.begin(), answer.begin() + ids.size()));
    if (records[i].finished->reason == FinishReason::kStop) {
      EXPECT_EQ(records[i].finished->stop_token, ids.back());
    } else {
      EXPECT_EQ(ids.size(), 20u);
    }
  }
  // 12 answers have up to 19 steps each, and a full step has 5 sequences. 25 more steps are
  // allowed, because some steps have fewer sequences.
  EXPECT_LE(worker_->Load().steps, 12u * 19 / 5 + 25);
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, ReservesOnlyWhatItHasRoomFor) {
  Start(32, {.max_sequences = 2});
  const auto large = Open(100), second = Open(24), small = Open(1);
  Record records[4];
  const auto id = Submit(Job(*large), &records[0]).value();  // needs 25 + 1 of 32 blocks
  ASSERT_TRUE(Submit(Job(*second), &records[1]).ok());       // needs 6 + 1 blocks
  Settle();
  EXPECT_TRUE(records[0].reserved);
  EXPECT_FALSE(records[1].reserved);
  EXPECT_EQ(records[1].ended->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(worker_->Load().waiting, 1);
  ASSERT_TRUE(Submit(Job(*small), &records[2]).ok());
  ASSERT_TRUE(Submit(Job(*small), &records[3]).ok());
  Settle();
  EXPECT_TRUE(records[2].reserved);
  EXPECT_THAT(records[3].ended->message(), HasSubstr("2 sequences"));
  worker_->Cancel(id);
  Settle();
  EXPECT_EQ(records[0].ended->code(), absl::StatusCode::kCancelled);
}

// Tickets come all the time, more than there is room for. If they took the last blocks, running
// sequences could not grow, and the youngest ones would lose their KV.
TEST_P(DecodeWorkerTest, TicketsLeaveTheRunningSequencesRoomToGrow) {
  Start(32);
  std::vector<std::unique_ptr<Handover>> handovers;
  std::vector<Record> records(60);
  for (Record& record : records) {  // needs 1 + 1 blocks at first, 4 at the end
    handovers.push_back(Ready(4, 12));
    ASSERT_TRUE(Submit(Job(*handovers.back(), 12), &record).ok());
    WorkerTurn();
    KvTurn();
  }
  Settle();
  int answered = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].ended->ok()) {
      EXPECT_EQ(records[i].ids(), handovers[i]->answer);
      ++answered;
    } else {
      EXPECT_FALSE(records[i].reserved) << *records[i].ended;
      EXPECT_THAT(records[i].ended->message(), HasSubstr("kept for the sequences that run"));
    }
  }
  EXPECT_GT(answered, 10);
  EXPECT_LT(answered, 60);
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, TheYoungestIsPreemptedWhenBlocksRunOut) {
  Start(32);
  std::vector<std::unique_ptr<Handover>> handovers;
  Record records[3];
  for (int i = 0; i < 3; ++i) {  // each needs 8 + 1 blocks at first, up to 23 later
    handovers.push_back(Ready(32, 60));
    ASSERT_TRUE(Submit(Job(*handovers[i], 60), &records[i]).ok());
  }
  Settle();
  EXPECT_TRUE(records[0].ended->ok());
  EXPECT_EQ(records[0].ids(), handovers[0]->answer);
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(records[i].ended->code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(records[i].ended->message(), HasSubstr("preempted"));
    EXPECT_GT(records[i].tokens.size(), 4u);
    const auto ids = records[i].ids();
    EXPECT_EQ(ids, std::vector<TokenId>(handovers[i]->answer.begin(),
                                        handovers[i]->answer.begin() + ids.size()));
  }
  EXPECT_GT(records[1].tokens.size(), records[2].tokens.size());
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, APullingSequenceIsPreemptedToo) {
  Start(32);
  const auto old = Ready(64, 60), young = Open(40);  // old needs 16 + 1 of 32 blocks, young 10 + 1
  Record first, second;
  ASSERT_TRUE(Submit(Job(*old, 60), &first).ok());
  ASSERT_TRUE(Submit(Job(*young), &second).ok());
  Settle();
  EXPECT_TRUE(second.reserved);
  EXPECT_THAT(second.ended->message(), HasSubstr("preempted"));
  EXPECT_EQ(first.ids(), old->answer);
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, APausedSequenceIsLeftOutAndInTheEndGivenUp) {
  Start(64, {.pause_limit = absl::Seconds(3)});
  const auto one = Ready(5), other = Ready(5);
  Record paused, running;
  const auto id = Submit(Job(*one), &paused).value();
  worker_->SetPaused(id, true);
  ASSERT_TRUE(Submit(Job(*other), &running).ok());
  Settle();
  EXPECT_TRUE(running.ended->ok());
  EXPECT_EQ(paused.tokens.size(), 1u);
  now_ += absl::Seconds(2);
  Settle();
  worker_->SetPaused(id, false);
  while (paused.tokens.size() < 5) WorkerTurn();
  worker_->SetPaused(id, true);
  Settle();
  EXPECT_LE(paused.tokens.size(), 6u + behind());
  now_ += absl::Seconds(4);
  Settle();
  EXPECT_EQ(paused.ended->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(paused.ended->message(), HasSubstr("3s"));
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, ABrokenHandOverEndsWithItsStatus) {
  Start();
  Record records[4];
  const auto aborted = Open(9), garbled = Open(9), misplaced = Open(9), stalled = Open(9);
  ASSERT_TRUE(Submit(Job(*aborted), &records[0]).ok());
  ASSERT_TRUE(Submit(Job(*garbled), &records[1]).ok());
  ASSERT_TRUE(Submit(Job(*misplaced), &records[2]).ok());
  Settle();
  EXPECT_TRUE(publisher_->Abort(aborted->ticket.handover_id).ok());
  Complete(*garbled, "what is this?");
  HandoverNote note;
  note.first_token = {.id = 1, .position = 10};
  Complete(*misplaced, note.Encode());
  Settle();
  EXPECT_EQ(records[0].ended->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(records[1].ended->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(records[2].ended->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(records[2].ended->message(), HasSubstr("position 10 after 9 tokens"));
  Record other_numerics;
  DecodeJob job = Job(*stalled);
  job.ticket->numerics_id = "cpu-f32x16-v1/kv-f32";
  ASSERT_TRUE(Submit(job, &other_numerics).ok());
  Settle();
  EXPECT_EQ(other_numerics.ended->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other_numerics.ended->message(),
              testing::AllOf(HasSubstr("cpu-f32x16-v1/kv-f32"), HasSubstr("fake-v2")));
  faulty_->SetFaults({.corrupt_read = 1});
  Complete(*stalled);
  ASSERT_TRUE(Submit(Job(*stalled), &records[3]).ok());
  Settle();
  EXPECT_EQ(records[3].ended->code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(records[3].tokens.empty());
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, BadNumbersEndOnlyTheirOwnSequence) {
  poison_ = 127;
  Start();
  const auto poisoned = Open(4);
  auto sound = Ready(4);
  while (std::count(sound->answer.begin(), sound->answer.end(), poison_) > 0) sound = Ready(4);
  HandoverNote note;
  note.first_token = {.id = poison_, .position = 4};
  Complete(*poisoned, note.Encode());
  Record bad, good;
  ASSERT_TRUE(Submit(Job(*poisoned), &bad).ok());
  ASSERT_TRUE(Submit(Job(*sound), &good).ok());
  Settle();
  EXPECT_EQ(bad.ended->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(good.ids(), sound->answer);
  ExpectAllBack();
}

TEST_P(DecodeWorkerTest, AnswersEndWithTheContext) {
  Start();
  const auto handover = Ready(120, 8);
  Record record;
  ASSERT_TRUE(Submit(Job(*handover, 1000), &record).ok());
  Settle();
  EXPECT_EQ(record.ids(), handover->answer);
  EXPECT_EQ(record.tokens.back().position, kContext - 1);
  EXPECT_EQ(record.finished->reason, FinishReason::kLength);
}

TEST_P(DecodeWorkerTest, RefusesWhatCanNeverWork) {
  Start(64, {.max_inbox = 1});
  const auto handover = Ready(9);
  Record record;
  const auto refused = [&](DecodeJob job, absl::StatusCode code, const std::string& message) {
    const auto id = Submit(std::move(job), &record);
    EXPECT_EQ(id.status().code(), code);
    EXPECT_THAT(id.status().message(), HasSubstr(message));
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  DecodeJob job = Job(*handover);
  job.tokens.pop_back();
  job.original_prompt_tokens = 1;
  refused(job, invalid, "ticket of 9 tokens, 3 blocks");
  job = Job(*handover);
  job.ticket->generations.pop_back();
  refused(job, invalid, "2 generations");
  job = Job(*handover);
  job.tokens[3] = kVocab;
  refused(job, invalid, "token 3 is 128");
  job = Job(*handover);
  job.original_prompt_tokens = 0;
  refused(job, invalid, "0 of 9");
  job.tokens.clear();
  refused(job, invalid, "0 tokens");
  ASSERT_TRUE(Submit(Job(*handover), &record).ok());
  refused(Job(*handover), absl::StatusCode::kResourceExhausted, "inbox is full");
  worker_->Drain();
  refused(Job(*handover), absl::StatusCode::kUnavailable, "draining");
  Settle();
  EXPECT_TRUE(record.ended->ok());
}

// Reads finish late, jobs are cancelled at any moment, and blocks that are freed last are reused
// first. Every answer must be right as far as it goes, every job must end once, and all blocks must
// come back.
TEST_P(DecodeWorkerTest, CancelDuringAPullNeverCorruptsTheNextOwnerOfItsBlocks) {
  int cancelled = 0, finished = 0;
  for (int seed = 0; seed < 30; ++seed) {
    Start(40, {.reuse_last_freed = true});
    faulty_->SetFaults({.read_delay_max = absl::Milliseconds(30), .shuffle_reads = true});
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<Handover>> handovers;
    std::vector<Record> records(40);
    std::vector<std::pair<int, DecodeWorker::JobId>> cancels;
    int turn = 0;
    for (Record& record : records) {
      handovers.push_back(Open(random() % 40 + 1, 6));
      const auto id = Submit(Job(*handovers.back(), 6), &record).value();
      if (random() % 2) cancels.emplace_back(turn + random() % 30, id);
      if (random() % 2) Complete(*handovers.back());
      for (const int end = turn + random() % 12; turn < end; ++turn) {
        for (const auto& [at, job] : cancels) {
          if (at == turn) worker_->Cancel(job);
        }
        now_ += absl::Milliseconds(1);
        random() % 2 ? KvTurn() : WorkerTurn();
      }
    }
    for (const auto& [at, job] : cancels) worker_->Cancel(job);
    for (const auto& handover : handovers) {
      EXPECT_TRUE(publisher_->Abort(handover->ticket.handover_id).ok());
    }
    for (int i = 0; i < 100; ++i) {
      now_ += absl::Milliseconds(5);
      Settle();
    }
    for (size_t i = 0; i < records.size(); ++i) {
      ASSERT_TRUE(records[i].ended) << "seed " << seed;
      const auto ids = records[i].ids();
      EXPECT_EQ(ids, std::vector<TokenId>(handovers[i]->answer.begin(),
                                          handovers[i]->answer.begin() + ids.size()))
          << "seed " << seed;
      cancelled += absl::IsCancelled(*records[i].ended);
      finished += records[i].ended->ok();
    }
    ExpectAllBack();
  }
  EXPECT_GT(cancelled, 100);
  EXPECT_GT(finished, 100);
}

class OutgrownTest : public DecodeWorkerTest {
 protected:
  OutgrownTest() : DecodeWorkerTest(FakeLongRopeConfig(12, kVocab, kContext)) {}
};

TEST_P(OutgrownTest, ASequenceEndsWhereItsRotaryTableDoes) {
  Start();
  Record record;
  const auto handover = Ready(10);
  ASSERT_TRUE(Submit(Job(*handover), &record).ok());
  Settle();
  ASSERT_TRUE(record.ended);
  EXPECT_TRUE(record.outgrown);
  EXPECT_EQ(record.ended->code(), absl::StatusCode::kFailedPrecondition);
  // The rotary table covers 12 tokens: the prompt's 10 and two of the answer. From the KV of these
  // 12 tokens, the worker can still sample the third token of the answer.
  EXPECT_EQ(record.ids(),
            std::vector<TokenId>(handover->answer.begin(), handover->answer.begin() + 3));
  ExpectAllBack();
}

TEST_P(OutgrownTest, AnAnswerThatEndsThereHasOutgrownNothing) {
  Start();
  Record record;
  const auto handover = Ready(10);
  ASSERT_TRUE(Submit(Job(*handover, 3), &record).ok());
  Settle();
  ASSERT_TRUE(record.ended && record.ended->ok());
  EXPECT_FALSE(record.outgrown);
  EXPECT_EQ(record.ids().size(), 3u);
}

TEST_P(OutgrownTest, ALongPromptGoesOnUnderTheTableOfItsLength) {
  Start();
  auto handover = Open(20);
  // The worker computes a prompt of 20 tokens with the rotary table for long sequences, whose first
  // entry is 0.25. So the expected answer is computed with this table, too.
  FakeOracle oracle(layout_, 0.25f);
  for (const TokenId token : handover->prompt) oracle.Append(token);
  for (TokenId& token : handover->answer) {
    token = oracle.Next(kVocab);
    oracle.Append(token);
  }
  Complete(*handover);
  Record record;
  ASSERT_TRUE(Submit(Job(*handover), &record).ok());
  Settle();
  ASSERT_TRUE(record.ended && record.ended->ok());
  EXPECT_EQ(record.ids(), handover->answer);
}

BATON_ALL_BACKENDS(DecodeWorkerTest);
BATON_ALL_BACKENDS(OutgrownTest);

}  // namespace
}  // namespace baton
