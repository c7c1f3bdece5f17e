#include "decode_worker/decode_harness.h"

// Tests of the prefix cache in a decode worker.
namespace baton {
namespace {

class DecodePrefixTest : public DecodeWorkerTest {
 protected:
  static std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  DecodeJob JobOf(std::vector<TokenId> tokens, int max_tokens) {
    DecodeJob job;
    job.request_id = "c";
    job.original_prompt_tokens = static_cast<int>(tokens.size());
    job.tokens = std::move(tokens);
    job.sampling.max_tokens = max_tokens;
    return job;
  }
  // Computes a prompt here and answers it. Returns the number of tokens that were cached.
  int Colocate(const std::vector<TokenId>& tokens, int max_tokens = 6) {
    Record record;
    EXPECT_TRUE(Submit(JobOf(tokens, max_tokens), &record).ok());
    Settle();
    EXPECT_EQ(record.ids(), FakeContinuation(layout_, tokens, kVocab, max_tokens));
    return record.cached;
  }
  // Has the owner compute the prompt, and hands it over. Returns the number of tokens that were
  // cached here.
  int HandOver(const std::vector<TokenId>& tokens, int max_tokens = 6) {
    Record record;
    const auto handover = ReadyOf(tokens, max_tokens);
    EXPECT_TRUE(Submit(Job(*handover, max_tokens), &record).ok());
    Settle();
    EXPECT_TRUE(record.ended && record.ended->ok()) << *record.ended;
    EXPECT_EQ(record.ids(), handover->answer);
    return record.cached;
  }
  std::unique_ptr<Handover> ReadyOf(const std::vector<TokenId>& tokens, int answer) {
    auto handover = OpenPrompt(tokens, answer);
    Complete(*handover);
    return handover;
  }
};

TEST_P(DecodePrefixTest, BlocksThatAreHereAreNotPulled) {
  DecodeMetrics metrics;
  Start(64, {.metrics = &metrics});
  const auto bytes = [&metrics] {
    uint64_t sum = 0;
    for (const Counter& counter : metrics.pulled_bytes) sum += counter.value();
    return sum;
  };
  const auto document = RandomTokens(30);
  EXPECT_EQ(HandOver(Joined(document, RandomTokens(5))), 0);
  EXPECT_EQ(bytes(), 9 * layout_.BlockBytes());
  EXPECT_EQ(HandOver(Joined(document, RandomTokens(9))), 28);
  EXPECT_EQ(bytes(), (9 + 10 - 7) * layout_.BlockBytes());
  EXPECT_EQ(metrics.cached_tokens.value(), 28u);
  ExpectAllBack();
}

// The next turn of a conversation finds the prompt and the answer of the turn before. The answer's
// last token has no KV.
TEST_P(DecodePrefixTest, TheNextTurnFindsPromptAndAnswer) {
  Start();
  std::vector<TokenId> turn = RandomTokens(21);
  for (const bool handed_over : {true, false, true}) {
    constexpr int kAnswer = 10;
    handed_over ? HandOver(turn, kAnswer) : Colocate(turn, kAnswer);
    turn = Joined(turn, FakeContinuation(layout_, turn, kVocab, kAnswer));
    const int with_kv = static_cast<int>(turn.size()) - 1;
    const std::vector<TokenId> next = Joined(turn, RandomTokens(7));
    EXPECT_EQ(Colocate(next), with_kv / kBlockTokens * kBlockTokens);
    turn = next;
  }
  ExpectAllBack();
}

// A late backend may have started a step before the stop token was known. That step writes one slot
// more than the sequence keeps. A block that it fills gets no name.
TEST_P(DecodePrefixTest, TokensThatTheSequenceDoesNotKeepAreNotNamed) {
  for (int length = 1; length < 9; ++length) {
    Start();
    const auto prompt = RandomTokens(20);
    const auto answer = FakeContinuation(layout_, prompt, kVocab, 30);
    DecodeJob job = JobOf(prompt, 30);
    job.sampling.stop_tokens = {answer[length]};
    if (std::find(answer.begin(), answer.begin() + length, answer[length]) !=
        answer.begin() + length) {
      continue;
    }
    Record record;
    ASSERT_TRUE(Submit(job, &record).ok());
    Settle();
    ASSERT_EQ(record.ids().size(), static_cast<size_t>(length) + 1);
    const auto kept = Joined(prompt, record.ids());
    const int with_kv = static_cast<int>(kept.size()) - 1;
    EXPECT_EQ(Colocate(Joined(kept, RandomTokens(9))), with_kv / kBlockTokens * kBlockTokens)
        << length;
    ExpectAllBack();
  }
}

TEST_P(DecodePrefixTest, TheBlockOfTheLastTokenIsComputedOrPulledAlways) {
  Start();
  const auto prompt = RandomTokens(16);
  Colocate(prompt, 1);
  EXPECT_EQ(Colocate(prompt, 1), 12);
  EXPECT_EQ(HandOver(prompt, 2), 12);
  ExpectAllBack();
}

// Four tickets have the same prompt. The first one pulls all blocks of the prompt. The others wait,
// and then pull only the prompt's last block.
TEST_P(DecodePrefixTest, TicketsWaitForBlocksThatArePulled) {
  DecodeMetrics metrics;
  Start(64, {.metrics = &metrics});
  const auto tokens = RandomTokens(22);
  Record records[4];
  std::vector<std::unique_ptr<Handover>> handovers;
  for (Record& record : records) {
    handovers.push_back(ReadyOf(tokens, 6));
    ASSERT_TRUE(Submit(Job(*handovers.back(), 6), &record).ok());
  }
  WorkerTurn();  // the KV thread has not started the pull
  EXPECT_TRUE(records[0].reserved);
  EXPECT_FALSE(records[1].reserved) << "these blocks must not be found before they are validated";
  EXPECT_EQ(worker_->Load().waiting, 4);
  Settle();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].cached, i == 0 ? 0 : 20);
    EXPECT_EQ(records[i].ids(), handovers[i]->answer);
    EXPECT_TRUE(handovers[i]->ended->ok());
  }
  uint64_t bytes = 0;
  for (const Counter& counter : metrics.pulled_bytes) bytes += counter.value();
  EXPECT_EQ(bytes, (6 + 3) * layout_.BlockBytes());
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, ATicketThatWaitsCanBeCancelled) {
  Start();
  const auto tokens = RandomTokens(22);
  const auto first = ReadyOf(tokens, 6), second = ReadyOf(tokens, 6);
  Record records[2];
  const auto pulling = Submit(Job(*first, 6), &records[0]).value();
  const auto waiting = Submit(Job(*second, 6), &records[1]).value();
  WorkerTurn();
  ASSERT_FALSE(records[1].reserved);
  worker_->Cancel(waiting);
  WorkerTurn();
  EXPECT_TRUE(absl::IsCancelled(*records[1].ended));
  worker_->Cancel(pulling);
  Settle();
  EXPECT_TRUE(absl::IsCancelled(*records[0].ended));
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, TheWaitForAPullIsBounded) {
  Start();
  const auto tokens = RandomTokens(22);
  const auto first = ReadyOf(tokens, 6), second = ReadyOf(tokens, 6);
  Record records[2];
  ASSERT_TRUE(Submit(Job(*first, 6), &records[0]).ok());
  ASSERT_TRUE(Submit(Job(*second, 6), &records[1]).ok());
  WorkerTurn();
  now_ += NameWait::kLimit - absl::Milliseconds(1);
  WorkerTurn();
  EXPECT_FALSE(records[1].reserved);
  now_ += absl::Milliseconds(1);
  WorkerTurn();
  EXPECT_TRUE(records[1].reserved);
  EXPECT_EQ(records[1].cached, 0);
  Settle();
  EXPECT_EQ(records[0].ids(), first->answer);
  ExpectAllBack();
}

// A prompt with the same tokens is computed here, one block in three seconds. Its owner would give
// the ticket up if nothing pulled its KV for 45 s.
TEST_P(DecodePrefixTest, TheWaitForBlocksThatAreComputedIsBoundedForTicketsAltogether) {
  Start(64, {.chunk_tokens = kBlockTokens});
  const auto tokens = RandomTokens(60);
  const auto handover = ReadyOf(tokens, 6);
  Record computed, waiting;
  ASSERT_TRUE(Submit(JobOf(tokens, 6), &computed).ok());
  WorkerTurn();
  ASSERT_TRUE(Submit(Job(*handover, 6), &waiting).ok());
  const absl::Time begin = now_;
  WorkerTurn();
  EXPECT_FALSE(waiting.reserved);
  while (!waiting.reserved && !computed.ended) {
    now_ += absl::Seconds(3);
    WorkerTurn();
  }
  EXPECT_TRUE(waiting.reserved);
  EXPECT_GT(waiting.cached, 0);
  EXPECT_LT(now_ - begin, NameWait::kLimit + absl::Seconds(3));
  Settle();
  EXPECT_EQ(computed.ids(), handover->answer);
  EXPECT_EQ(waiting.ids(), handover->answer);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, APromptWaitsForBlocksThatArePulled) {
  Start();
  const auto tokens = RandomTokens(20);
  const auto handover = ReadyOf(tokens, 6);
  Record pulled, waiting, other;
  ASSERT_TRUE(Submit(Job(*handover, 6), &pulled).ok());
  WorkerTurn();
  ASSERT_TRUE(Submit(JobOf(tokens, 6), &waiting).ok());
  ASSERT_TRUE(Submit(JobOf(RandomTokens(9), 6), &other).ok());
  WorkerTurn();
  EXPECT_FALSE(waiting.reserved);
  EXPECT_TRUE(other.reserved);  // does not wait behind `waiting`
  Settle();
  EXPECT_EQ(waiting.cached, 16);
  EXPECT_EQ(waiting.ids(), handover->answer);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, APromptDoesNotWaitForAPullThatFailed) {
  Start();
  const auto tokens = RandomTokens(20);
  const auto handover = ReadyOf(tokens, 6);
  FaultyTransport::Faults faults;
  faults.corrupt_read = 1;
  faulty_->SetFaults(faults);
  Record pulled, waiting;
  ASSERT_TRUE(Submit(Job(*handover, 6), &pulled).ok());
  WorkerTurn();
  ASSERT_TRUE(Submit(JobOf(tokens, 6), &waiting).ok());
  Settle();
  EXPECT_TRUE(absl::IsDataLoss(*pulled.ended)) << *pulled.ended;
  EXPECT_TRUE(absl::IsDataLoss(*handover->ended)) << "the owner learns of it";
  EXPECT_EQ(waiting.cached, 0);
  EXPECT_EQ(waiting.ids(), handover->answer);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, AfterDataLossTheSharedBlocksAreNotFoundEither) {
  Start();
  const auto document = RandomTokens(20);
  Colocate(document);
  const auto handover = ReadyOf(Joined(document, RandomTokens(10)), 6);
  FaultyTransport::Faults faults;
  faults.corrupt_read = 1;
  faulty_->SetFaults(faults);
  Record record;
  ASSERT_TRUE(Submit(Job(*handover, 6), &record).ok());
  Settle();
  ASSERT_TRUE(absl::IsDataLoss(*record.ended)) << *record.ended;
  EXPECT_EQ(record.cached, 20);
  EXPECT_EQ(Colocate(document), 0);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, AfterInternalNothingIsFound) {
  poison_ = 126;
  Start();
  auto document = RandomTokens(20);
  for (TokenId& token : document) token = token == poison_ ? 1 : token;
  const auto answered = [&] {
    Record record;
    EXPECT_TRUE(Submit(JobOf(document, 1), &record).ok());
    Settle();
    EXPECT_TRUE(record.ended->ok()) << *record.ended;
    return record.cached;
  };
  answered();
  EXPECT_EQ(answered(), 16);
  Record record;
  ASSERT_TRUE(Submit(JobOf(Joined(document, {poison_}), 4), &record).ok());
  Settle();
  ASSERT_TRUE(absl::IsInternal(*record.ended)) << *record.ended;
  EXPECT_EQ(answered(), 0);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, ARefreshedPromptRemovesWhatItWouldHaveFound) {
  Start();
  const auto tokens = RandomTokens(20);
  Colocate(tokens);
  DecodeJob job = JobOf(tokens, 6);
  job.cache = CacheUse::kRefresh;
  Record record;
  ASSERT_TRUE(Submit(job, &record).ok());
  Settle();
  EXPECT_EQ(record.cached, 0);
  EXPECT_EQ(Colocate(tokens), 16);
  ExpectAllBack();
}

// Both calls come in the middle of a turn of the loop.
TEST_P(DecodePrefixTest, APromptAfterAForgetFindsNothing) {
  Start();
  const auto tokens = RandomTokens(20);
  Colocate(tokens);
  Record record;
  bool asked = false;
  ASSERT_TRUE(worker_
                  ->Submit(JobOf(RandomTokens(8), 4),
                           [&](const DecodeUpdate& update) {
                             if (asked || !std::holds_alternative<DecodeTokens>(update)) return;
                             EXPECT_TRUE(worker_->Forget(tokens, 20, "").ok());
                             EXPECT_TRUE(Submit(JobOf(tokens, 6), &record).ok());
                             asked = true;
                           })
                  .ok());
  Settle();
  ASSERT_TRUE(asked);
  EXPECT_EQ(record.cached, 0);
  EXPECT_EQ(Colocate(tokens), 16);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, CachedBlocksGiveWayToSequencesThatGrow) {
  Start(/*blocks=*/32);
  const auto first = RandomTokens(60);
  Colocate(first, 4);  // leaves 15 of 32 blocks in the cache
  const auto second = RandomTokens(60);
  EXPECT_EQ(Colocate(second, 60), 0);  // needs 30 blocks
  EXPECT_LT(Colocate(first, 1), 60);
  ExpectAllBack();
}

TEST_P(DecodePrefixTest, SaltsShareNothing) {
  Start();
  const auto tokens = RandomTokens(20);
  const auto cached = [&](const char* salt) {
    DecodeJob job = JobOf(tokens, 2);
    job.cache_salt = salt;
    Record record;
    EXPECT_TRUE(Submit(job, &record).ok());
    Settle();
    return record.cached;
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("a"), 16);
  ExpectAllBack();
}

BATON_ALL_BACKENDS(DecodePrefixTest);

}  // namespace
}  // namespace baton
