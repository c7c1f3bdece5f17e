#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_transfer/testing/faulty_transport.h"
#include "prefill_worker/prefill_harness.h"

// Tests of the prefix cache in a prefill worker.
namespace baton {
namespace {

class PrefillPrefixTest : public PrefillWorkerTest {
 protected:
  // Computes a prompt and lets a reader pull its KV. Returns all reports about it.
  Record Run(PrefillJob job) {
    Record record;
    EXPECT_TRUE(Submit(std::move(job), &record).ok());
    Settle();
    Read(record);
    EXPECT_TRUE(record.ended && record.ended->ok()) << *record.ended;
    return record;
  }
  void Read(const Record& record) {
    const auto blocks = reader_pool_->Take(static_cast<int>(record.ticket->blocks.size())).value();
    puller_->Start(*record.ticket, 0, blocks, [](PullResult) {});
    Settle();
    reader_pool_->Release(blocks);
  }
  int Cached(const std::vector<TokenId>& prompt) {
    const Record record = Run(Job(prompt));
    EXPECT_EQ(record.first->token.id, FakeContinuation(layout_, prompt, kVocab, 1)[0]);
    return record.cached;
  }
  static std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

TEST_F(PrefillPrefixTest, ComputesOnlyWhatFollowsTheCachedBlocks) {
  PrefillMetrics metrics;
  Start(64, {.metrics = &metrics});
  const auto document = Prompt(30);
  EXPECT_EQ(Cached(Joined(document, Prompt(5))), 0);
  EXPECT_EQ(metrics.prompt_tokens.value(), 35u);
  EXPECT_EQ(Cached(Joined(document, Prompt(9))), 28);  // 7 blocks of 4 tokens
  EXPECT_EQ(metrics.prompt_tokens.value(), 35u + 39 - 28);
  EXPECT_EQ(metrics.cached_tokens.value(), 28u);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, TheBlockOfTheLastTokenIsComputedAlways) {
  Start();
  const auto prompt = Prompt(16);
  EXPECT_EQ(Cached(prompt), 0);
  EXPECT_EQ(Cached(prompt), 12);
  EXPECT_EQ(Cached(Joined(prompt, {5})), 16);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, ThePartialBlockIsNotShared) {
  Start();
  const auto prompt = Prompt(18);
  Cached(prompt);
  EXPECT_EQ(Cached(Joined(prompt, Prompt(10))), 16);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, SaltsAndOptOutsShareNothing) {
  Start();
  const auto run = [this](std::vector<TokenId> prompt, std::string salt, CacheUse use) {
    PrefillJob job = Job(std::move(prompt));
    job.cache_salt = std::move(salt);
    job.cache = use;
    return Run(std::move(job)).cached;
  };
  const auto prompt = Prompt(20);
  EXPECT_EQ(run(prompt, "", CacheUse::kOff), 0);
  EXPECT_EQ(run(prompt, "", CacheUse::kOn), 0);  // the run with kOff left nothing in the cache
  EXPECT_EQ(run(prompt, "a", CacheUse::kOn), 0);
  EXPECT_EQ(run(prompt, "b", CacheUse::kOn), 0);
  EXPECT_EQ(run(prompt, "", CacheUse::kOff), 0);
  for (const char* salt : {"", "a", "b"}) EXPECT_EQ(run(prompt, salt, CacheUse::kOn), 16) << salt;
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, LogprobsOfThePromptNeedAllOfIt) {
  Start();
  const auto prompt = Prompt(20);
  Cached(prompt);
  PrefillJob job = Job(prompt);
  job.sampling.prompt_logprobs = 0;
  const Record record = Run(std::move(job));
  EXPECT_EQ(record.cached, 0);
  EXPECT_EQ(record.prompt.size(), 20u);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, EqualPromptsAtTheSameTimeAreComputedOnce) {
  PrefillMetrics metrics;
  Start(64, {.metrics = &metrics});
  const auto prompt = Prompt(40);
  const auto other = Prompt(8);
  Record records[4];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Submit(Job(prompt), &records[i]).ok());
  ASSERT_TRUE(Submit(Job(other), &records[3]).ok());
  Settle();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].first->token.id, FakeContinuation(layout_, prompt, kVocab, 1)[0]);
    EXPECT_EQ(records[i].cached, i == 0 ? 0 : 36);
  }
  // The last prompt does not wait for the blocks that the second and the third wait for.
  EXPECT_LT(records[3].first->queue, records[1].first->queue);
  EXPECT_EQ(metrics.prompt_tokens.value(), 40u + 4 + 4 + 8);
  for (const Record& record : records) Read(record);
  ExpectAllBack();
}

// The prompt that the others wait for is cancelled. The next one computes the blocks.
TEST_F(PrefillPrefixTest, APromptDoesNotWaitForBlocksOfAPromptThatHasEnded) {
  Start();
  const auto prompt = Prompt(40);
  Record records[2];
  const auto id = Submit(Job(prompt), &records[0]).value();
  ASSERT_TRUE(Submit(Job(prompt), &records[1]).ok());
  while (!records[0].ticket) {
    WorkerTurn();
    KvTurn();
  }
  worker_->Cancel(id);
  Settle();
  EXPECT_TRUE(absl::IsCancelled(*records[0].ended));
  ASSERT_TRUE(records[1].first);
  EXPECT_EQ(records[1].first->token.id, FakeContinuation(layout_, prompt, kVocab, 1)[0]);
  Read(records[1]);
  ExpectAllBack();
}

// The KV thread does not open the first hand-over, so the first prompt does not go on.
TEST_F(PrefillPrefixTest, TheWaitForABlockIsBounded) {
  Start(64, {.chunk_tokens = 64});
  const auto prompt = Prompt(40);
  Record records[2];
  ASSERT_TRUE(Submit(Job(prompt), &records[0]).ok());
  ASSERT_TRUE(Submit(Job(prompt), &records[1]).ok());
  WorkerTurn();
  ASSERT_EQ(worker_->Load().running, 1);
  now_ += NameWait::kLimit - absl::Milliseconds(1);
  WorkerTurn();
  EXPECT_EQ(worker_->Load().running, 1);
  now_ += absl::Milliseconds(1);
  WorkerTurn();
  EXPECT_EQ(worker_->Load().running, 2);
  Settle();
  for (const Record& record : records) {
    EXPECT_EQ(record.first->token.id, FakeContinuation(layout_, prompt, kVocab, 1)[0]);
    Read(record);
  }
  ExpectAllBack();
}

// The logits after the poisonous token are not numbers, which ends the job with Internal.
TEST_F(PrefillPrefixTest, AfterInternalNothingIsFound) {
  Start();
  const auto document = Prompt(20);
  Cached(document);
  Record record;
  ASSERT_TRUE(Submit(Job(Joined(document, {kPoison})), &record).ok());
  Settle();
  ASSERT_TRUE(absl::IsInternal(*record.ended)) << *record.ended;
  EXPECT_EQ(Cached(document), 0);
  EXPECT_EQ(Cached(document), 16);
  ExpectAllBack();
}

// The second prompt waits for a block of the first one, which ends with Internal. The second one
// looks for cached blocks before the first one's hand-over is closed.
TEST_F(PrefillPrefixTest, WhoWaitedForAPromptThatEndsWithInternalFindsNothing) {
  Start(64, {.chunk_tokens = 16});
  const auto document = Prompt(40);
  Record records[2];
  ASSERT_TRUE(Submit(Job(Joined(document, {kPoison})), &records[0]).ok());
  ASSERT_TRUE(Submit(Job(Joined(document, {5})), &records[1]).ok());
  while (!records[0].ticket) {
    WorkerTurn();
    KvTurn();
  }
  for (int i = 0; i < 100; ++i) WorkerTurn();
  Settle();
  EXPECT_TRUE(absl::IsInternal(*records[0].ended)) << *records[0].ended;
  EXPECT_EQ(records[1].cached, 0);
  Read(records[1]);
  EXPECT_TRUE(records[1].ended->ok()) << *records[1].ended;
  ExpectAllBack();
}

// The client cancels the request just when the worker learns that its KV is wrong.
TEST_F(PrefillPrefixTest, ACancelDoesNotHideThatAReaderGotWrongBytes) {
  Start();
  const auto prompt = Prompt(20);
  Record record;
  const auto id = Submit(Job(prompt), &record).value();
  Settle();
  owner_->pool()[layout_.BlockOffset(record.ticket->blocks[1])] ^= std::byte{1};
  const auto blocks = reader_pool_->Take(static_cast<int>(record.ticket->blocks.size())).value();
  puller_->Start(*record.ticket, 0, blocks, [](PullResult) {});
  worker_->Cancel(id);
  while (publisher_->open_handovers() > 0) KvTurn();
  Settle();
  reader_pool_->Release(blocks);
  owner_->pool()[layout_.BlockOffset(record.ticket->blocks[1])] ^= std::byte{1};
  EXPECT_TRUE(absl::IsDataLoss(*record.ended)) << *record.ended;
  EXPECT_EQ(Cached(prompt), 0);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, AfterAReaderGotWrongBytesNothingIsFound) {
  Start();
  const auto prompt = Prompt(20);
  Cached(prompt);
  Record record;
  ASSERT_TRUE(Submit(Job(prompt), &record).ok());
  Settle();
  ASSERT_EQ(record.cached, 16);
  // Changes bytes of a block that has its checksum already.
  owner_->pool()[layout_.BlockOffset(record.ticket->blocks[1])] ^= std::byte{1};
  Read(record);
  owner_->pool()[layout_.BlockOffset(record.ticket->blocks[1])] ^= std::byte{1};
  ASSERT_TRUE(record.ended);
  EXPECT_TRUE(absl::IsDataLoss(*record.ended)) << *record.ended;
  EXPECT_EQ(Cached(prompt), 0);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, ARefreshedPromptRemovesWhatItWouldHaveFound) {
  Start();
  const auto prompt = Prompt(20);
  const Record old = Run(Job(prompt));
  PrefillJob job = Job(prompt);
  job.cache = CacheUse::kRefresh;
  job.cache_salt = "other";
  EXPECT_EQ(Run(job).cached, 0);
  EXPECT_EQ(Cached(prompt), 16);  // the refreshed prompt had another salt
  job.cache_salt.clear();
  const Record refreshed = Run(job);
  EXPECT_EQ(refreshed.cached, 0);
  // The refreshed prompt leaves its own blocks in the cache, and the blocks of `old` are gone.
  const Record next = Run(Job(prompt));
  EXPECT_EQ(next.cached, 16);
  for (int i = 0; i < 4; ++i) {
    const auto block = [i](const Record& record) {
      return std::pair(record.ticket->blocks[i], record.ticket->generations[i]);
    };
    EXPECT_NE(block(next), block(old));
    EXPECT_EQ(block(next), block(refreshed));
  }
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, ForgetRemovesASequenceAndAllThatBeginWithIt) {
  Start();
  const auto document = Prompt(20), other = Prompt(20);
  const auto longer = Joined(document, Prompt(20));
  Cached(longer);
  Cached(other);
  ASSERT_TRUE(worker_->Forget(document, 20, "salt").ok());  // nothing has this salt
  EXPECT_EQ(Cached(longer), 36);
  ASSERT_TRUE(worker_->Forget(document, 20, "").ok());
  EXPECT_EQ(Cached(longer), 0);
  EXPECT_EQ(Cached(other), 16);
  ExpectAllBack();
  EXPECT_FALSE(worker_->Forget({}, 0, "").ok());
  EXPECT_FALSE(worker_->Forget({kVocab}, 1, "").ok());
}

// Both calls come in the middle of a turn of the loop.
TEST_F(PrefillPrefixTest, APromptAfterAForgetFindsNothing) {
  Start();
  const auto document = Prompt(20);
  Cached(document);
  Record other, record;
  bool asked = false;
  ASSERT_TRUE(worker_
                  ->Submit(Job(Prompt(8)),
                           [&](const PrefillUpdate& update) {
                             if (const auto* begun = std::get_if<PrefillBegun>(&update)) {
                               other.ticket = begun->ticket;
                             } else if (std::holds_alternative<PrefillFirstToken>(update)) {
                               EXPECT_TRUE(worker_->Forget(document, 20, "").ok());
                               EXPECT_TRUE(Submit(Job(document), &record).ok());
                               asked = true;
                             }
                           })
                  .ok());
  Settle();
  ASSERT_TRUE(asked);
  EXPECT_EQ(record.cached, 0);
  Read(other);
  Read(record);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, ARunningPromptLeavesNothingThatWasForgotten) {
  Start(64, {.chunk_tokens = 4});
  const auto document = Prompt(20);
  Cached(document);
  Record record;
  ASSERT_TRUE(Submit(Job(Joined(document, Prompt(20))), &record).ok());
  while (!record.ticket) {
    KvTurn();
    WorkerTurn();
  }
  ASSERT_EQ(record.cached, 20);
  ASSERT_TRUE(worker_->Forget(document, 20, "").ok());
  Settle();
  Read(record);
  ASSERT_TRUE(record.ended);
  EXPECT_EQ(Cached(document), 0);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, CachedBlocksGiveWayToPrompts) {
  Start(/*blocks=*/32);
  const auto first = Prompt(100);  // 25 blocks
  Cached(first);
  EXPECT_EQ(worker_->Load().free_blocks, 32);
  Cached(Prompt(100));
  // The first prompt's last blocks were evicted, and its first ones are still there.
  const int left = Cached(first);
  EXPECT_GT(left, 0);
  EXPECT_LT(left, 32);
  ExpectAllBack();
}

// Blocks that a waiting prompt would find are not lost if it can't begin.
TEST_F(PrefillPrefixTest, APromptWithAHitWaitsForFreeBlocks) {
  Start(/*blocks=*/32);
  const auto document = Prompt(40);
  Cached(document);
  Record holder, waiting;
  ASSERT_TRUE(Submit(Job(Prompt(60)), &holder).ok());  // 15 blocks; 7 are left beside the cache
  Settle();
  ASSERT_TRUE(Submit(Job(Joined(document, Prompt(60))), &waiting).ok());  // 10 + 15 blocks
  Settle();
  EXPECT_FALSE(waiting.ticket);
  EXPECT_EQ(worker_->Load().free_blocks, 17);
  Read(holder);
  Settle();
  ASSERT_TRUE(waiting.first);
  EXPECT_EQ(waiting.cached, 40);
  Read(waiting);
  ExpectAllBack();
}

TEST_F(PrefillPrefixTest, ADisabledCacheFindsNothing) {
  Start(64, {.cache = {.enabled = false}});
  const auto prompt = Prompt(20);
  EXPECT_EQ(Cached(prompt), 0);
  EXPECT_EQ(Cached(prompt), 0);
  ExpectAllBack();
}

}  // namespace
}  // namespace baton
