#include "decode_worker/decode_harness.h"

// Tests of prompts that the decode worker computes itself, in chunks, in the same steps as the
// sequences that generate.
namespace baton {
namespace {

using ::testing::HasSubstr;

class ColocatedTest : public DecodeWorkerTest {
 protected:
  void OneTurn() {
    KvTurn();
    WorkerTurn();
  }
};

TEST_P(ColocatedTest, APromptOfItsOwnGivesTheSameTokens) {
  Start(64, {.chunk_tokens = 16});
  const Prompt prompt = Colocated(53);
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  EXPECT_EQ(worker_->Load().waiting_tokens, 53);
  Settle();
  EXPECT_EQ(record.ids(), prompt.answer);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(record.tokens[i].position, 53 + i);
  EXPECT_TRUE(record.reserved);
  EXPECT_EQ(record.finished->reason, FinishReason::kLength);
  EXPECT_EQ(record.finished->link, "");
  // The decode time is 19 steps of 2 ms. It is not exact for the backend kLate, where part of a
  // step's time may count for the step before.
  if (backends_ != Backends::kLate) {
    EXPECT_EQ(record.finished->decode, absl::Milliseconds(2 * 19));
  }
  EXPECT_EQ(record.ended, absl::OkStatus());
  EXPECT_EQ(worker_->Load().steps, 4u + 19);  // the chunks have 16, 16, 16 and 5 tokens
  EXPECT_EQ(worker_->Load().waiting_tokens, 0);
  ExpectAllBack();
}

// Chunked prefill guarantees that no stream waits for more than one chunk.
TEST_P(ColocatedTest, StreamsGoOnInEveryStepOfALongPrompt) {
  Start(64, {.chunk_tokens = 8});
  const Prompt stream = Colocated(3, 40), longer = Colocated(100);
  Record first, second;
  ASSERT_TRUE(Submit(stream.job, &first).ok());
  while (first.tokens.size() < 2) WorkerTurn();
  ASSERT_TRUE(Submit(longer.job, &second).ok());
  size_t tokens = first.tokens.size(), turns = 0;
  while (second.tokens.empty()) {
    WorkerTurn();
    EXPECT_EQ(first.tokens.size(), ++tokens) << "the stream stood still";
    ++turns;
  }
  // A step has 8 tokens: 1 of the stream and 7 of the prompt. So the prompt's 100 tokens take 15
  // steps, each in one call of RunOnce. The next call hands out the results of the last step, or
  // the call after that if the worker starts a step before the previous one has ended.
  EXPECT_EQ(turns, 1u + 100 / 7 + 1 + behind());
  Settle();
  EXPECT_EQ(first.ids(), stream.answer);
  EXPECT_EQ(second.ids(), longer.answer);
  ExpectAllBack();
}

TEST_P(ColocatedTest, ALargeBatchLeavesAPromptOneBlockOfTokens) {
  Start(256, {.chunk_tokens = 8});
  std::vector<Prompt> prompts;
  std::vector<Record> records(12);
  for (Record& record : records) {
    prompts.push_back(Colocated(2, 60));
    ASSERT_TRUE(Submit(prompts.back().job, &record).ok());
  }
  while (records.back().tokens.empty()) WorkerTurn();
  const Prompt late = Colocated(40);
  Record record;
  ASSERT_TRUE(Submit(late.job, &record).ok());
  const uint64_t steps = worker_->Load().steps;
  while (record.tokens.empty()) WorkerTurn();
  EXPECT_LE(worker_->Load().steps - steps, 40u / kBlockTokens + 2);
  Settle();
  EXPECT_EQ(record.ids(), late.answer);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(records[i].ids(), prompts[i].answer);
  ExpectAllBack();
}

TEST_P(ColocatedTest, PromptsBeginInTheirOrderAndWaitForRoomWithoutEnding) {
  Start(32, {.chunk_tokens = 128});
  const Prompt one = Colocated(80), two = Colocated(60), three = Colocated(4);
  Record records[3];
  ASSERT_TRUE(Submit(one.job, &records[0]).ok());    // needs 20 + 1 of 32 blocks
  ASSERT_TRUE(Submit(two.job, &records[1]).ok());    // needs 15 + 1 blocks, but 11 are free
  ASSERT_TRUE(Submit(three.job, &records[2]).ok());  // would fit, but must not overtake
  WorkerTurn();
  EXPECT_TRUE(records[0].reserved);
  EXPECT_FALSE(records[1].reserved);
  EXPECT_FALSE(records[2].reserved);
  EXPECT_EQ(worker_->Load().waiting, 2);
  Settle();
  EXPECT_EQ(records[0].ids(), one.answer);
  EXPECT_EQ(records[1].ids(), two.answer);
  EXPECT_EQ(records[2].ids(), three.answer);
  ExpectAllBack();
}

TEST_P(ColocatedTest, AShortPromptOfAnotherCallerDoesNotWaitForALongOne) {
  Start(128, {.chunk_tokens = 8});
  Prompt longer = Colocated(100), other = Colocated(100), shorter = Colocated(8);
  longer.job.caller = 1;
  other.job.caller = 2;
  shorter.job.caller = 3;
  Record records[3];
  ASSERT_TRUE(Submit(longer.job, &records[0]).ok());
  ASSERT_TRUE(Submit(other.job, &records[1]).ok());
  for (int turn = 0; turn < 4; ++turn) OneTurn();
  ASSERT_TRUE(Submit(shorter.job, &records[2]).ok());
  for (int turn = 0; turn < 4; ++turn) OneTurn();
  EXPECT_FALSE(records[2].tokens.empty());
  EXPECT_TRUE(records[0].tokens.empty());
  Settle();
  EXPECT_EQ(records[0].ids(), longer.answer);
  EXPECT_EQ(records[1].ids(), other.answer);
  EXPECT_EQ(records[2].ids(), shorter.answer);
  ExpectAllBack();
}

// One caller's answers fill the batch. So, of the tokens that the worker computes, this caller has
// more than another one, which sends prompts without end. Yet its own prompt gets its turn: it
// begins when at most one has passed it, and gets a quarter of the tokens for prompts.
TEST_P(ColocatedTest, ShortPromptsWithoutEndDoNotPassAnOlderOneWithoutEnd) {
  Start(400, {.chunk_tokens = 8});
  std::vector<std::unique_ptr<Handover>> tickets;
  std::vector<Record> answers(8);
  for (Record& answer : answers) {
    tickets.push_back(Ready(4, 110));
    DecodeJob job = Job(*tickets.back(), 110);
    job.caller = 1;
    ASSERT_TRUE(Submit(job, &answer).ok());
  }
  while (worker_->Load().running < 8) OneTurn();
  std::deque<Record> records;
  std::deque<Prompt> asked;
  const auto queue_more = [&] {
    while (worker_->Load().waiting < 3) {
      asked.push_back(Colocated(16, 1));
      asked.back().job.caller = 2;
      ASSERT_TRUE(Submit(asked.back().job, &records.emplace_back()).ok());
      OneTurn();
    }
  };
  queue_more();
  Prompt prompt = Colocated(20);
  prompt.job.caller = 1;
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  for (int turn = 0; turn < 60 && record.tokens.empty(); ++turn) {
    queue_more();
    OneTurn();
  }
  ASSERT_FALSE(answers[0].ended);
  EXPECT_FALSE(record.tokens.empty());
  Settle();
  EXPECT_EQ(record.ids(), prompt.answer);
  for (size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(records[i].ids(), asked[i].answer);
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].ids(), tickets[i]->answer);
  ExpectAllBack();
}

// Prompts and tickets do not starve each other. Blocks that a prompt waits for are not given to
// tickets. If the sequences of tickets fill the batch, a prompt gets a place in it once the older
// sequences are done.
TEST_P(ColocatedTest, APromptThatWaitsIsNotOvertakenByTickets) {
  Start(32, {.max_batch = 2});
  const Prompt holder = Colocated(60, 30), waiting = Colocated(80);
  const auto ticket = Ready(8);
  Record records[4];
  ASSERT_TRUE(Submit(holder.job, &records[0]).ok());
  WorkerTurn();
  ASSERT_TRUE(Submit(waiting.job, &records[1]).ok());  // needs 20 + 1 blocks; 16 are free
  WorkerTurn();
  ASSERT_FALSE(records[1].reserved);
  ASSERT_TRUE(Submit(Job(*ticket), &records[2]).ok());
  WorkerTurn();
  EXPECT_EQ(records[2].ended->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(records[2].ended->message(), HasSubstr("prompts wait"));
  Settle();
  EXPECT_EQ(records[0].ids(), holder.answer);
  EXPECT_EQ(records[1].ids(), waiting.answer);
  ASSERT_TRUE(Submit(Job(*ticket), &records[3]).ok());
  Settle();
  EXPECT_EQ(records[3].ids(), ticket->answer);
  ExpectAllBack();
}

// Even if new prompts are queued all the time, a refused ticket gets its blocks soon.
TEST_P(ColocatedTest, ATicketThatWasRefusedIsNextBeforeThePromptsThatQueue) {
  Start(32, {.max_batch = 8});
  std::deque<Record> prompts;
  std::deque<Prompt> asked;
  const auto queue_more = [&] {
    while (worker_->Load().waiting < 4) {
      // A prompt of 24 tokens fills 6 blocks. To begin, it needs one more free block, and one for
      // each running sequence.
      asked.push_back(Colocated(24, 12));
      ASSERT_TRUE(Submit(asked.back().job, &prompts.emplace_back()).ok());
      OneTurn();
    }
  };
  queue_more();
  const auto ticket = Ready(60, 8);  // needs 15 + 1 blocks
  Record record;
  int refused = 0;
  for (int turn = 0; turn < 2000 && !record.reserved; ++turn) {
    queue_more();
    if (turn % 20 == 0) {  // submits the ticket again, as a router does
      if (record.ended) ++refused;
      record = Record();
      ASSERT_TRUE(Submit(Job(*ticket, 8), &record).ok());
    }
    OneTurn();
  }
  EXPECT_TRUE(record.reserved);
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 10);
  Settle();
  // The pool is small, so some sequences are preempted later. The tokens that a sequence got before
  // its preemption must be right.
  const auto expect_begun = [](const Record& seen, const std::vector<TokenId>& answer) {
    const std::vector<TokenId> ids = seen.ids();
    if (seen.ended->ok()) {
      EXPECT_EQ(ids, answer);
    } else {
      EXPECT_THAT(seen.ended->message(), HasSubstr("preempted"));
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), answer.begin()));
    }
  };
  expect_begun(record, ticket->answer);
  for (size_t i = 0; i < asked.size(); ++i) expect_begun(prompts[i], asked[i].answer);
  ExpectAllBack();
}

// New tickets come all the time. The worker keeps free blocks for a ticket that it has refused, and
// the ticket is submitted again. A prompt must begin nevertheless.
TEST_P(ColocatedTest, TicketsWithoutEndLeaveAPromptItsTurn) {
  Start(32, {.max_batch = 8});
  std::deque<std::unique_ptr<Handover>> tickets;
  std::deque<Record> records;
  // Indices of the tickets that wait to be admitted, or have not ended yet.
  std::vector<size_t> wanted;
  int turn = 0, let_in = 0;
  const auto turn_with_tickets = [&] {
    std::erase_if(wanted, [&](size_t i) { return records[i].reserved && records[i].ended; });
    if (wanted.size() < 6) {
      tickets.push_back(Ready(8, 30));  // needs 2 + 1 blocks at first, 10 at the end
      records.emplace_back().ended.emplace();
      wanted.push_back(records.size() - 1);
    }
    for (const size_t i : wanted) {
      // Submits the ticket again, as a router does.
      if (!records[i].ended || (turn + i) % 10 != 0) continue;
      records[i] = Record();
      ASSERT_TRUE(Submit(Job(*tickets[i], 30), &records[i]).ok());
    }
    const auto reserved = [&] {
      return std::ranges::count_if(records, [](const Record& record) { return record.reserved; });
    };
    const auto before = reserved();
    OneTurn();
    let_in += static_cast<int>(reserved() - before);
    ++turn;
  };
  while (turn < 100 || worker_->Load().running < 5) turn_with_tickets();
  const Prompt prompt = Colocated(90);  // needs 23 + 1 blocks, and one for each running sequence
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  turn_with_tickets();
  ASSERT_FALSE(record.reserved);
  let_in = 0;
  while (turn < 2000 && !record.reserved) turn_with_tickets();
  EXPECT_TRUE(record.reserved);
  EXPECT_GT(let_in, 0);
  EXPECT_LT(let_in, 10);
}

// Blocks that are kept for a refused ticket go to the next ticket for which they suffice, and to
// only one ticket.
TEST_P(ColocatedTest, OneTicketForEachTurnHoweverSmall) {
  Start(32, {.max_batch = 8});
  const Prompt holder = Colocated(60, 30), waiting = Colocated(80);
  const auto large = Ready(28), small = Ready(8, 30), next = Ready(8, 30);
  Record records[5];
  ASSERT_TRUE(Submit(holder.job, &records[0]).ok());
  WorkerTurn();
  ASSERT_TRUE(Submit(waiting.job, &records[1]).ok());  // needs 20 + 1 blocks; 16 are free
  WorkerTurn();
  ASSERT_TRUE(Submit(Job(*large), &records[2]).ok());  // needs 7 + 1 blocks
  WorkerTurn();
  ASSERT_TRUE(records[2].ended.has_value());
  ASSERT_TRUE(Submit(Job(*small, 30), &records[3]).ok());  // needs 2 + 1 blocks
  ASSERT_TRUE(Submit(Job(*next, 30), &records[4]).ok());
  WorkerTurn();
  EXPECT_TRUE(records[3].reserved);
  EXPECT_FALSE(records[4].reserved);
  ASSERT_TRUE(records[4].ended.has_value());
  EXPECT_THAT(records[4].ended->message(), HasSubstr("prompts wait"));
  Settle();
  EXPECT_EQ(records[1].ids(), waiting.answer);
  EXPECT_EQ(records[3].ids(), small->answer);
}

// A stream whose client does not read keeps no place in the batch, so a prompt can begin.
TEST_P(ColocatedTest, APausedStreamKeepsNoPromptFromBeginning) {
  Start(64, {.max_batch = 1});
  const Prompt slow = Colocated(8, 30), prompt = Colocated(8);
  Record records[2];
  const auto id = Submit(slow.job, &records[0]);
  ASSERT_TRUE(id.ok());
  while (records[0].tokens.size() < 2) OneTurn();
  worker_->SetPaused(*id, true);
  ASSERT_TRUE(Submit(prompt.job, &records[1]).ok());
  for (int turn = 0; turn < 100 && !records[1].finished; ++turn) OneTurn();
  EXPECT_EQ(records[1].ids(), prompt.answer);
  EXPECT_FALSE(records[0].finished);
  worker_->SetPaused(*id, false);
  Settle();
  EXPECT_EQ(records[0].ids(), slow.answer);
  ExpectAllBack();
}

TEST_P(ColocatedTest, APromptRefusedForTheQueuesLengthLeavesNothing) {
  Start(64, {.max_sequences = 1});
  const Prompt one = Colocated(40, 60), two = Colocated(30), three = Colocated(30);
  Record records[3];
  ASSERT_TRUE(Submit(one.job, &records[0]).ok());
  OneTurn();  // the prompt begins, so the queue is empty
  ASSERT_TRUE(Submit(two.job, &records[1]).ok());
  ASSERT_TRUE(Submit(three.job, &records[2]).ok());
  Settle();
  EXPECT_EQ(records[0].ids(), one.answer);
  EXPECT_EQ(records[2].ended->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(records[2].ended->message(), HasSubstr("1 prompts in its queue"));
  EXPECT_EQ(worker_->Load().waiting_tokens, 0);
  ExpectAllBack();
}

// An older prompt is paused in the queue while a younger one begins. When the older prompt is
// resumed and waits for blocks, the younger one still goes on.
TEST_P(ColocatedTest, APromptThatWaitsFreezesNobodyWhoBegan) {
  Start(32, {.chunk_tokens = 8});
  const Prompt older = Colocated(100), younger = Colocated(60);
  Record records[2];
  const auto id = Submit(older.job, &records[0]).value();
  worker_->SetPaused(id, true);
  ASSERT_TRUE(Submit(younger.job, &records[1]).ok());
  OneTurn();
  ASSERT_TRUE(records[1].reserved);
  worker_->SetPaused(id, false);
  Settle();
  EXPECT_EQ(records[1].ids(), younger.answer);
  EXPECT_EQ(records[0].ids(), older.answer);
  ExpectAllBack();
}

TEST_P(ColocatedTest, ABatchThatTicketsKeepFullHasAPlaceForAPrompt) {
  Start(128, {.max_batch = 2});
  std::deque<Record> records;
  std::vector<std::unique_ptr<Handover>> handovers;
  const auto take_over = [&] {
    handovers.push_back(Ready(4, 30));
    ASSERT_TRUE(Submit(Job(*handovers.back(), 30), &records.emplace_back()).ok());
  };
  take_over();
  take_over();
  while (records[1].tokens.size() < 2) OneTurn();
  const Prompt prompt = Colocated(10);
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  int turns = 0;
  while (!record.ended && ++turns < 500) {
    if (worker_->jobs() < 4) take_over();  // so there are always two other sequences that can run
    OneTurn();
  }
  EXPECT_EQ(record.ids(), prompt.answer);
}

TEST_P(ColocatedTest, NoMoreBeginThanTheBatchHolds) {
  Start(64, {.max_batch = 2});
  std::vector<Prompt> prompts;
  Record records[5];
  for (Record& record : records) {
    prompts.push_back(Colocated(4));
    ASSERT_TRUE(Submit(prompts.back().job, &record).ok());
  }
  int max = 0;
  for (int i = 0; i < 300; ++i) {
    WorkerTurn();
    max = std::max(max, worker_->Load().running);
  }
  EXPECT_EQ(max, 2);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(records[i].ids(), prompts[i].answer);
}

// The turns of callers let the youngest begin first, and younger ones don't count as those that
// fill the batch.
TEST_P(ColocatedTest, AStepComputesNoMorePromptsThanTheBatchHolds) {
  Start(128, {.max_batch = 4, .chunk_tokens = 64});
  std::vector<Prompt> prompts;
  Record records[8];
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(Colocated(8 - i));
    prompts.back().job.caller = static_cast<uint64_t>(i) + 1;
    ASSERT_TRUE(Submit(prompts.back().job, &records[i]).ok());
  }
  WorkerTurn();
  EXPECT_EQ(std::ranges::count_if(records, [](const Record& record) { return record.reserved; }),
            4);
  Settle();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(records[i].ids(), prompts[i].answer);
  ExpectAllBack();
}

TEST_P(ColocatedTest, ChunksAndPullsMixAtRandom) {
  Start(256, {.max_batch = 6, .chunk_tokens = 24});
  std::vector<std::unique_ptr<Handover>> handovers;
  std::vector<std::vector<TokenId>> answers;
  std::vector<Record> records(40);
  for (Record& record : records) {
    const int n = static_cast<int>(random_() % 90) + 1;
    DecodeJob job;
    if (random_() % 2) {
      handovers.push_back(Ready(n));
      job = Job(*handovers.back());
      answers.push_back(handovers.back()->answer);
    } else {
      const Prompt prompt = Colocated(n);
      job = prompt.job;
      answers.push_back(prompt.answer);
    }
    const auto id = Submit(job, &record);
    ASSERT_TRUE(id.ok()) << id.status();
    if (random_() % 4 == 0) {
      worker_->SetPaused(*id, true);
      WorkerTurn();
      KvTurn();
      worker_->SetPaused(*id, false);
    }
    for (int i = random_() % 9; i > 0; --i) {
      WorkerTurn();
      KvTurn();
    }
  }
  Settle();
  for (size_t i = 0; i < records.size(); ++i) {
    ASSERT_TRUE(records[i].finished) << i << ": " << *records[i].ended;
    EXPECT_EQ(records[i].ids(), answers[i]) << i;
  }
  ExpectAllBack();
}

TEST_P(ColocatedTest, CancelledInEveryStateAllComesBack) {
  Start(32, {.chunk_tokens = 8});
  const Prompt one = Colocated(60), two = Colocated(90);
  Record records[3];
  const auto computing = Submit(one.job, &records[0]).value();
  const auto queued = Submit(two.job, &records[1]).value();
  WorkerTurn();
  ASSERT_TRUE(records[0].reserved);
  ASSERT_FALSE(records[1].reserved);
  worker_->Cancel(queued);
  worker_->Cancel(computing);
  Settle();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].ended->code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(records[i].tokens.empty());
  }
  EXPECT_EQ(worker_->Load().waiting_tokens, 0);
  ExpectAllBack();
  const auto running = Submit(one.job, &records[2]).value();
  while (records[2].tokens.size() < 3) WorkerTurn();
  worker_->Cancel(running);
  Settle();
  EXPECT_EQ(records[2].ended->code(), absl::StatusCode::kCancelled);
  ExpectAllBack();
}

TEST_P(ColocatedTest, APausedPromptIsLeftOutAndInTheEndGivenUp) {
  Start(64, {.chunk_tokens = 8, .pause_limit = absl::Seconds(3)});
  const Prompt one = Colocated(40), two = Colocated(40);
  Record paused, running;
  const auto id = Submit(one.job, &paused).value();
  WorkerTurn();
  worker_->SetPaused(id, true);
  ASSERT_TRUE(Submit(two.job, &running).ok());
  Settle();
  EXPECT_EQ(running.ids(), two.answer);
  EXPECT_TRUE(paused.tokens.empty());
  now_ += absl::Seconds(4);
  Settle();
  EXPECT_THAT(paused.ended->message(), HasSubstr("the sequence was paused for more than 3s"));
  ExpectAllBack();
}

// When blocks run out, the oldest sequence still finishes. A preempted sequence ends with a status
// that says so, and the tokens that it got before are right.
TEST_P(ColocatedTest, TheYoungestIsPreemptedWhenBlocksRunOut) {
  Start(32, {.chunk_tokens = 16});
  std::vector<Prompt> prompts;
  Record records[4];
  for (Record& record : records) {
    prompts.push_back(Colocated(20, 90));
    ASSERT_TRUE(Submit(prompts.back().job, &record).ok());
  }
  Settle();
  EXPECT_EQ(records[0].ids(), prompts[0].answer);
  int preempted = 0;
  for (int i = 1; i < 4; ++i) {
    const auto ids = records[i].ids();
    EXPECT_EQ(ids, std::vector<TokenId>(prompts[i].answer.begin(),
                                        prompts[i].answer.begin() + ids.size()));
    if (records[i].ended->ok()) continue;
    ++preempted;
    EXPECT_EQ(records[i].ended->code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(records[i].ended->message(), HasSubstr("preempted"));
  }
  EXPECT_GT(preempted, 0);
  ExpectAllBack();
}

TEST_P(ColocatedTest, ThePromptsOwnLogprobsComeBeforeTheFirstToken) {
  Start(64, {.chunk_tokens = 8});
  Prompt prompt = Colocated(21, 4);
  prompt.job.sampling.prompt_logprobs = 1;
  Record record;
  ASSERT_TRUE(Submit(prompt.job, &record).ok());
  Settle();
  ASSERT_EQ(record.prompt.size(), 21u);
  for (int i = 0; i < 21; ++i) {
    EXPECT_EQ(record.prompt[i].position, i);
    EXPECT_EQ(record.prompt[i].id, prompt.job.tokens[i]);
    EXPECT_EQ(record.prompt[i].logprob.has_value(), i > 0);
  }
  EXPECT_EQ(record.ids(), prompt.answer);
}

// A second attempt gets the prompt and the tokens that the first attempt generated.
TEST_P(ColocatedTest, AnAnswerBegunElsewhereGoesOn) {
  Start();
  Prompt prompt = Colocated(30);
  DecodeJob again = prompt.job;
  again.tokens.insert(again.tokens.end(), prompt.answer.begin(), prompt.answer.begin() + 7);
  Record record;
  ASSERT_TRUE(Submit(again, &record).ok());
  Settle();
  EXPECT_EQ(record.ids(), std::vector<TokenId>(prompt.answer.begin() + 7, prompt.answer.end()));
  EXPECT_EQ(record.finished->reason, FinishReason::kLength);
  again.sampling.max_tokens = 7;
  const auto done = Submit(again, &record);
  EXPECT_EQ(done.status().message(), "max_tokens is 7 and 7 tokens have been generated already");
}

TEST_P(ColocatedTest, LogitsThatAreNoNumbersEndThatPromptOnly) {
  poison_ = 77;
  Start(64, {.chunk_tokens = 16});
  Prompt bad = Colocated(40), good = Colocated(40);
  for (TokenId& id : bad.job.tokens) id = 5;
  for (TokenId& id : good.job.tokens) id = 6;
  bad.job.tokens.back() = poison_;
  bad.job.sampling.prompt_logprobs = 0;  // so the logits of the prompt are checked too
  bad.job.tokens[3] = poison_;
  good.answer = FakeContinuation(layout_, good.job.tokens, kVocab, 20);
  Record records[2];
  ASSERT_TRUE(Submit(bad.job, &records[0]).ok());
  ASSERT_TRUE(Submit(good.job, &records[1]).ok());
  Settle();
  EXPECT_EQ(records[0].ended->code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(records[0].tokens.empty());
  EXPECT_EQ(records[1].ids(), good.answer);
  ExpectAllBack();
}

BATON_ALL_BACKENDS(ColocatedTest);

}  // namespace
}  // namespace baton
