#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_transfer/kv_test_world.h"

namespace baton {
namespace {

constexpr KvLayout kHandoverLayout{.layers = 4, .kv_heads = 2, .head_dim = 8, .block_tokens = 4};
constexpr WorkerEpoch kOwner = 101;
constexpr WorkerEpoch kReader = 201;
constexpr WorkerEpoch kOtherReader = 202;

// One owner and two readers. There are no faults unless a test injects them.
class HandoverTest : public testing::Test {
 protected:
  HandoverTest()
      : fabric_({.single_threaded = true}),
        owner_(&fabric_, false, kOwner, kHandoverLayout, 32, 1, &now_),
        reader_(&fabric_, true, kReader, kHandoverLayout, 32, 2, &now_),
        other_(&fabric_, true, kOtherReader, kHandoverLayout, 32, 3, &now_) {}

  void Introduce() {
    owner_.plane->SetPeers({reader_.AsPeer(), other_.AsPeer()});
    reader_.plane->SetPeers({owner_.AsPeer()});
    other_.plane->SetPeers({owner_.AsPeer()});
    Run(absl::Milliseconds(400));
    ASSERT_EQ(reader_.plane->links().size(), 1u);
  }
  void Step(absl::Duration by = absl::Milliseconds(1)) {
    now_ += by;
    if (owner_runs_) owner_.plane->RunOnce(now_);
    reader_.plane->RunOnce(now_);
    other_.plane->RunOnce(now_);
  }
  void Run(absl::Duration time, absl::Duration by = absl::Milliseconds(1)) {
    for (const absl::Time end = now_ + time; now_ < end;) Step(by);
  }

  // Opens a hand-over of 10 tokens in 3 blocks.
  KvTicket Open() {
    blocks_ = owner_.pool->Take(3);
    return owner_.publisher->Open(blocks_, 10, [this](absl::Status status) {
      ended_ = status;
      owner_.pool->Return(blocks_);
    });
  }
  void Fill(int first, int end, int first_layer, int end_layer) {
    for (int i = first; i < end; ++i) {
      for (int layer = first_layer; layer < end_layer; ++layer) {
        FillSlice(owner_.plane.get(), blocks_[i], layer, 1000 + i);
      }
    }
  }
  void PublishAll(const KvTicket& ticket) {
    Fill(0, 3, 0, kHandoverLayout.layers);
    owner_.publisher->Publish(ticket.handover_id, 10, kHandoverLayout.layers);
    owner_.publisher->Complete(ticket.handover_id, "first token");
  }
  uint64_t Start(TestWorker* reader, const KvTicket& ticket, uint32_t attempt,
                 std::optional<PullResult>* result, std::vector<BlockId>* blocks = nullptr) {
    const auto taken = reader->pool->Take(static_cast<int>(ticket.blocks.size()));
    if (blocks != nullptr) *blocks = taken;
    return reader->puller->Start(
        ticket, attempt, taken, [this, reader, taken, result](PullResult r) {
          EXPECT_FALSE(result->has_value());
          if (r.status.ok()) {
            for (size_t i = 0; i < taken.size(); ++i) {
              for (int layer = 0; layer < kHandoverLayout.layers; ++layer) {
                EXPECT_TRUE(SliceIs(reader->plane.get(), taken[i], layer, 1000 + i));
              }
            }
          }
          *result = std::move(r);
          reader->pool->Return(taken);
        });
  }

  // Delays all later reads of the reader by `time`.
  void SlowReads(absl::Duration time) {
    FaultyTransport::Faults slow;
    slow.read_delay_min = slow.read_delay_max = time;
    reader_.transport->SetFaults(slow);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  bool owner_runs_ = true;
  // `blocks_`, `ended_` and `result_` are declared before the workers, whose destructors write to
  // them.
  std::vector<BlockId> blocks_;
  std::optional<absl::Status> ended_;
  std::optional<PullResult> result_;
  InProcessFabric fabric_;
  TestWorker owner_, reader_, other_;
};

TEST_F(HandoverTest, SlicesArePulledAsTheyGetReady) {
  Introduce();
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(20));
  Fill(0, 2, 0, 2);
  owner_.publisher->Publish(ticket.handover_id, 8, 2);
  Run(absl::Milliseconds(20));
  Fill(0, 2, 2, 4);
  owner_.publisher->Publish(ticket.handover_id, 8, 4);
  Fill(2, 3, 0, 3);
  owner_.publisher->Publish(ticket.handover_id, 10, 3);
  Run(absl::Milliseconds(20));
  EXPECT_FALSE(result_.has_value());
  Fill(2, 3, 3, 4);
  owner_.publisher->Publish(ticket.handover_id, 10, 4);
  owner_.publisher->Complete(ticket.handover_id, "first token");
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_EQ(result_->payload, "first token");
  EXPECT_EQ(result_->bytes, 3 * kHandoverLayout.BlockBytes());
  EXPECT_EQ(result_->link, "inproc");
  EXPECT_GE(result_->hidden, absl::Milliseconds(50));
  EXPECT_LE(result_->exposed, absl::Milliseconds(10));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(ended_->ok()) << *ended_;
  EXPECT_EQ(owner_.publisher->open_handovers(), 0);
  EXPECT_EQ(owner_.pool->free(), 32u);
  EXPECT_EQ(reader_.pool->free(), 32u);
}

// KvPlane runs in a loop that sleeps between its turns. If the owner's completion note arrives
// during a sleep, the time `exposed` (the part of the pull after the first token was known) begins
// with the turn that handles the note.
TEST_F(HandoverTest, WhatIsExposedBeginsWithTheNoteNotWithTheSleepBeforeIt) {
  Introduce();
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Fill(0, 3, 0, kHandoverLayout.layers);
  owner_.publisher->Publish(ticket.handover_id, 10, kHandoverLayout.layers);
  Run(absl::Milliseconds(20));
  now_ += absl::Milliseconds(40);
  owner_.publisher->Complete(ticket.handover_id, "first token");
  owner_.plane->RunOnce(now_);
  Run(absl::Milliseconds(10));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_LE(result_->exposed, absl::Milliseconds(5));
  EXPECT_GE(result_->hidden, absl::Milliseconds(55));
}

// The reader's process stops for 6 s while bytes from the owner are under way. The reader must not
// take this for a stop of the owner.
TEST_F(HandoverTest, AStopOfOurOwnIsNotTakenForOneOfTheOwners) {
  Introduce();
  SlowReads(absl::Milliseconds(6010));
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(5));
  ASSERT_GT(reader_.transport->reads_outstanding(), 0u);
  reader_.transport->SetFaults({});
  now_ += absl::Seconds(6);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
}

TEST_F(HandoverTest, APullThatComesAfterCompletionGetsEverything) {
  Introduce();
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Run(absl::Seconds(2));
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_EQ(result_->hidden, absl::ZeroDuration());
}

TEST_F(HandoverTest, LinksAreProvenOnlyOnceBothSidesKnowEachOther) {
  reader_.plane->SetPeers({owner_.AsPeer()});
  Run(absl::Seconds(1));
  EXPECT_TRUE(reader_.plane->links().empty());
  EXPECT_GT(owner_.plane->counters().unknown_peer, 0u);
  owner_.plane->SetPeers({reader_.AsPeer()});
  Run(absl::Milliseconds(300));
  ASSERT_EQ(reader_.plane->links().size(), 1u);
  EXPECT_EQ(reader_.plane->links()[0].epoch, kOwner);
  EXPECT_EQ(reader_.plane->links()[0].link, "inproc");
  // KvPlane measures the rate of a link by reading known bytes from the peer. The measurement ends
  // two turns of the plane's loop after the turn that began the read. A turn takes 1 ms in this
  // test, so the measured time is at least 2 ms.
  EXPECT_GT(reader_.plane->links()[0].bytes_per_us, 0);
  EXPECT_LE(reader_.plane->links()[0].bytes_per_us, KvMeta::kPatternBytes / 2000.0);
  reader_.plane->SetPeers({});
  EXPECT_TRUE(reader_.plane->links().empty());
}

TEST_F(HandoverTest, APeerWhosePatternIsWrongIsNotUsedUntilItIsRight) {
  FaultyTransport::Faults faults;
  faults.corrupt_read = 1;
  reader_.transport->SetFaults(faults);
  owner_.plane->SetPeers({reader_.AsPeer()});
  reader_.plane->SetPeers({owner_.AsPeer()});
  Run(absl::Seconds(3));
  EXPECT_TRUE(reader_.plane->links().empty());
  EXPECT_GE(reader_.plane->counters().wrong_pattern, 3u);
  EXPECT_LE(reader_.plane->counters().wrong_pattern, 10u) << "the pause grows";
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(result_->status)) << result_->status;
  reader_.transport->SetFaults({});
  Run(absl::Seconds(6));
  EXPECT_EQ(reader_.plane->links().size(), 1u);
}

TEST_F(HandoverTest, PeersOfAnotherLayoutEpochOrGarbageAreLeftOut) {
  KvPeer garbage{5, "garbage", "nonsense"};
  KvPeer wrong_epoch = owner_.AsPeer();
  wrong_epoch.epoch = 7;
  KvLayout other_layout = kHandoverLayout;
  other_layout.layers = 5;
  TestWorker stranger(&fabric_, false, 300, other_layout, 4, 9, &now_);
  reader_.plane->SetPeers({garbage, wrong_epoch, stranger.AsPeer()});
  Run(absl::Milliseconds(200));
  EXPECT_TRUE(reader_.plane->links().empty());
  EXPECT_EQ(reader_.plane->StateOf(5), KvPlane::LinkState::kUnknown);
  EXPECT_EQ(reader_.plane->StateOf(7), KvPlane::LinkState::kUnknown);
  EXPECT_EQ(reader_.plane->StateOf(300), KvPlane::LinkState::kUnknown);
}

TEST_F(HandoverTest, CorruptBytesAreDataLoss) {
  Introduce();
  FaultyTransport::Faults faults;
  faults.corrupt_read = 1;
  reader_.transport->SetFaults(faults);
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDataLoss(result_->status)) << result_->status;
  // The owner learns that the bytes were wrong, because no other reader may get these blocks.
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsDataLoss(*ended_)) << *ended_;
  EXPECT_EQ(owner_.publisher->open_handovers(), 0);
}

TEST_F(HandoverTest, TheOwnerLearnsOfCorruptBytesAlthoughNotesAreLost) {
  Introduce();
  FaultyTransport::Faults faults;
  faults.corrupt_read = 1;
  faults.drop_note = 0.5;
  reader_.transport->SetFaults(faults);
  owner_.transport->SetFaults(faults);
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Seconds(5));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDataLoss(result_->status)) << result_->status;
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsDataLoss(*ended_)) << *ended_;
}

// The first two blocks are those of an earlier prompt that began with the same tokens.
TEST_F(HandoverTest, BlocksThatAreReadyArePublishedAtOnceWithTheirOldChecksums) {
  Introduce();
  blocks_ = owner_.pool->Take(3);
  const std::vector<BlockId> ready = blocks_;
  const KvTicket first = owner_.publisher->Open(blocks_, 10, [](absl::Status) {});
  PublishAll(first);
  Start(&reader_, first, 1, &result_);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value() && result_->status.ok()) << result_->status;
  for (const bool changed : {false, true}) {
    // If the checksums were computed again, changed bytes would look right.
    if (changed) FillSlice(owner_.plane.get(), ready[0], 1, 77);
    const std::vector<BlockId> blocks = {ready[0], ready[1], owner_.pool->Take(1)[0]};
    const KvTicket ticket = owner_.publisher->Open(
        blocks, 10, [](absl::Status) {}, /*ready_blocks=*/2);
    std::optional<PullResult> result;
    std::vector<BlockId> into;
    Start(&reader_, ticket, 1, &result, &into);
    Run(absl::Milliseconds(20));
    EXPECT_TRUE(SliceIs(reader_.plane.get(), into[1], kHandoverLayout.layers - 1, 1001));
    for (int layer = 0; layer < kHandoverLayout.layers; ++layer) {
      FillSlice(owner_.plane.get(), blocks[2], layer, 1002);
    }
    owner_.publisher->Publish(ticket.handover_id, 10, kHandoverLayout.layers);
    owner_.publisher->Complete(ticket.handover_id, "first token");
    Run(absl::Milliseconds(20));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->status.code(), changed ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk)
        << result->status;
  }
}

TEST_F(HandoverTest, BlocksThatAreReadyGetChecksumsIfTheyHaveNone) {
  Introduce();
  const std::vector<BlockId> blocks = owner_.pool->Take(3);
  for (int i = 0; i < 3; ++i) {
    for (int layer = 0; layer < kHandoverLayout.layers; ++layer) {
      FillSlice(owner_.plane.get(), blocks[i], layer, 1000 + i);
    }
  }
  // A hand-over that is aborted after it has shown one block, and half of another.
  const KvTicket aborted = owner_.publisher->Open(blocks, 10, [](absl::Status) {});
  owner_.publisher->Publish(aborted.handover_id, 4, kHandoverLayout.layers);
  owner_.publisher->Publish(aborted.handover_id, 8, 2);
  EXPECT_TRUE(owner_.publisher->Abort(aborted.handover_id).ok());
  const KvTicket ticket = owner_.publisher->Open(
      blocks, 10, [](absl::Status) {}, /*ready_blocks=*/2);
  owner_.publisher->Publish(ticket.handover_id, 10, kHandoverLayout.layers);
  owner_.publisher->Complete(ticket.handover_id, "first token");
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
}

TEST_F(HandoverTest, BlocksThatTheReaderHoldsAreNeitherReadNorWritten) {
  Introduce();
  for (const int held : {1, 2}) {
    const KvTicket ticket = Open();
    PublishAll(ticket);
    const auto into = reader_.pool->Take(3);
    for (int i = 0; i < 3; ++i) FillBlock(reader_.plane.get(), into[i], 5000 + i);
    std::optional<PullResult> result;
    reader_.puller->Start(
        ticket, 1, into, [&](PullResult r) { result = std::move(r); }, held);
    Run(absl::Milliseconds(50));
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->status.ok()) << result->status;
    EXPECT_EQ(result->bytes, (3 - held) * kHandoverLayout.BlockBytes());
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(BlockIs(reader_.plane.get(), into[i], i < held ? 5000 + i : 1000 + i)) << i;
    }
    reader_.pool->Return(into);
  }
}

TEST_F(HandoverTest, ABlockWithAnotherOwnerIsDataLoss) {
  Introduce();
  KvTicket ticket = Open();
  PublishAll(ticket);
  owner_.plane->generations()[blocks_[1]].fetch_add(2);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDataLoss(result_->status)) << result_->status;
}

TEST_F(HandoverTest, WhatTheTicketGetsWrongIsAStatus) {
  Introduce();
  const KvTicket good = Open();
  PublishAll(good);
  const auto expect = [&](KvTicket ticket, absl::StatusCode code) {
    std::optional<PullResult> result;
    const auto blocks = reader_.pool->Take(3);
    reader_.puller->Start(ticket, 1, blocks, [&](PullResult r) { result = std::move(r); });
    EXPECT_FALSE(result.has_value()) << "never from inside Start";
    Run(absl::Milliseconds(50));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->status.code(), code) << result->status;
    reader_.pool->Return(blocks);
  };
  KvTicket ticket = good;
  ticket.layout_fingerprint = "other";
  expect(ticket, absl::StatusCode::kFailedPrecondition);
  ticket = good;
  ticket.numerics_id = "other";
  expect(ticket, absl::StatusCode::kFailedPrecondition);
  ticket = good;
  ticket.secret = "short";
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket = good;
  ticket.secret[3] ^= 1;
  expect(ticket, absl::StatusCode::kFailedPrecondition);
  ticket = good;
  ticket.handover_id += 5;
  expect(ticket, absl::StatusCode::kFailedPrecondition);
  ticket = good;
  ticket.generations.pop_back();
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket = good;
  ticket.blocks[1] = 32;
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket = good;
  ticket.blocks[1] = -1;
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket = good;
  ticket.tokens = 0x7FFFFFFF;
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket = good;
  ticket.owner_epoch = 999;
  expect(ticket, absl::StatusCode::kFailedPrecondition);
  EXPECT_GE(owner_.plane->counters().refused, 2u);
  expect(good, absl::StatusCode::kOk);
}

TEST_F(HandoverTest, AnAbortedHandoverIsFailedPreconditionAtOnce) {
  Introduce();
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(20));
  EXPECT_TRUE(owner_.publisher->Abort(ticket.handover_id).ok());
  // The engine may have been computing a step during the abort. Such an engine still publishes and
  // completes the hand-over, which no longer exists.
  owner_.publisher->Publish(ticket.handover_id, 10, 4);
  owner_.publisher->Complete(ticket.handover_id, "");
  Run(absl::Milliseconds(5));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(result_->status)) << result_->status;
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(HandoverTest, TheLeaseRunsOutOnlyWithoutAWord) {
  Introduce();
  const KvTicket ticket = Open();
  Run(absl::Seconds(15), absl::Milliseconds(50));
  EXPECT_FALSE(ended_.has_value()) << "not while it is being computed";
  PublishAll(ticket);
  SlowReads(absl::Seconds(3));
  Run(absl::Seconds(8), absl::Milliseconds(50));
  const uint64_t pull = Start(&reader_, ticket, 1, &result_);
  Run(absl::Seconds(4), absl::Milliseconds(50));
  EXPECT_FALSE(ended_.has_value()) << "the pull renews it";
  reader_.puller->Cancel(pull);
  Run(absl::Seconds(9), absl::Milliseconds(50));
  EXPECT_FALSE(ended_.has_value());
  Run(absl::Seconds(2), absl::Milliseconds(50));
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*ended_)) << *ended_;
  EXPECT_EQ(result_->status.code(), absl::StatusCode::kCancelled);
  std::optional<PullResult> late;
  Start(&reader_, ticket, 2, &late);
  Run(absl::Milliseconds(20));
  EXPECT_TRUE(absl::IsFailedPrecondition(late->status)) << late->status;
}

TEST_F(HandoverTest, ALeaseIsJudgedAfterTheInboxIsDrained) {
  Introduce();
  const KvTicket ticket = Open();
  PublishAll(ticket);
  SlowReads(absl::Seconds(1));
  Run(absl::Seconds(5), absl::Milliseconds(50));
  // The owner's process stops for longer than the lease. Meanwhile a reader pulls everything.
  owner_runs_ = false;
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Seconds(1), absl::Milliseconds(50));
  now_ += absl::Seconds(10);
  owner_runs_ = true;
  owner_.plane->RunOnce(now_);
  EXPECT_FALSE(ended_.has_value()) << "the reader's word was in the inbox";
}

TEST_F(HandoverTest, ALaterAttemptTakesOverAndAnOlderReleaseDoesNotEndIt) {
  Introduce();
  const KvTicket ticket = Open();
  std::optional<PullResult> first, second, third;
  const uint64_t pull = Start(&reader_, ticket, 1, &first);
  Run(absl::Milliseconds(20));
  Start(&other_, ticket, 2, &second);
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(first->status)) << first->status;
  reader_.puller->Cancel(pull);
  Start(&reader_, ticket, 1, &third);  // attempt 1 is older than attempt 2, which reads now
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(third.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(third->status)) << third->status;
  EXPECT_EQ(owner_.publisher->open_handovers(), 1);
  PublishAll(ticket);
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(second->status.ok()) << second->status;
  EXPECT_TRUE(ended_.has_value() && ended_->ok());
}

TEST_F(HandoverTest, AStoppedOwnerIsDeadlineExceededAndItsLinkDown) {
  Introduce();
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(20));
  owner_runs_ = false;
  Run(absl::Seconds(3), absl::Milliseconds(50));
  EXPECT_FALSE(result_.has_value());
  Run(absl::Seconds(2), absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(result_->status)) << result_->status;
  EXPECT_TRUE(reader_.plane->links().empty());
  owner_runs_ = true;
  Run(absl::Seconds(8), absl::Milliseconds(50));
  EXPECT_EQ(reader_.plane->links().size(), 1u) << "it is used again when it is back";
}

TEST_F(HandoverTest, AReadThatStallsEndsByForceAndOnlyThenTheBlocksComeBack) {
  Introduce();
  FaultyTransport::Faults faults;
  faults.stall_read = 1;
  reader_.transport->SetFaults(faults);
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(500), absl::Milliseconds(50));
  EXPECT_GT(reader_.transport->reads_outstanding(), 0u);
  Run(absl::Seconds(5), absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(result_->status)) << result_->status;
}

TEST_F(HandoverTest, CancelWaitsForReadsUnderWay) {
  Introduce();
  SlowReads(absl::Seconds(1));
  const KvTicket ticket = Open();
  PublishAll(ticket);
  std::vector<BlockId> blocks;
  const uint64_t pull = Start(&reader_, ticket, 1, &result_, &blocks);
  Run(absl::Milliseconds(50));
  reader_.puller->Cancel(pull);
  reader_.puller->Cancel(pull + 7);
  Run(absl::Milliseconds(500));
  EXPECT_FALSE(result_.has_value());
  Run(absl::Milliseconds(600));
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(reader_.puller->running_pulls(), 0);
}

// UCX 1.13 does this to connections that are made while the network fails.
TEST_F(HandoverTest, AConnectionThatKeepsNotesBackIsMadeAnew) {
  Introduce();
  owner_.transport->MuteConnections();
  Run(absl::Seconds(7));
  EXPECT_TRUE(reader_.plane->links().empty());
  Run(absl::Seconds(10));
  ASSERT_EQ(reader_.plane->links().size(), 1u);
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
}

// The router does not blame this worker for it, as it would after Unavailable.
TEST_F(HandoverTest, ALostPeerIsAFailedPrecondition) {
  Introduce();
  SlowReads(absl::Seconds(1));
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(50));
  reader_.plane->SetPeers({});
  Run(absl::Milliseconds(5));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(result_->status)) << result_->status;
  EXPECT_EQ(reader_.transport->reads_outstanding(), 0u);
}

TEST_F(HandoverTest, ASlowTransportDelaysCompletionOnly) {
  Introduce();
  const KvTicket fast = Open();
  std::optional<PullResult> at_once;
  PublishAll(fast);
  Start(&reader_, fast, 1, &at_once);
  Run(absl::Milliseconds(50));
  ASSERT_TRUE(at_once.has_value() && at_once->status.ok());
  FaultyTransport::Faults slow;
  slow.note_delay_min = slow.note_delay_max = absl::Seconds(1);
  owner_.transport->SetFaults(slow);
  reader_.transport->SetFaults(slow);
  const KvTicket ticket = Open();
  PublishAll(ticket);
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(1900), absl::Milliseconds(10));
  EXPECT_FALSE(result_.has_value());
  Run(absl::Milliseconds(300), absl::Milliseconds(10));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
}

TEST_F(HandoverTest, LostNotesAreMadeUpFor) {
  Introduce();
  FaultyTransport::Faults lossy;
  lossy.drop_note = 0.5;
  owner_.transport->SetFaults(lossy);
  reader_.transport->SetFaults(lossy);
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(100));
  PublishAll(ticket);
  Run(absl::Seconds(9), absl::Milliseconds(10));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_TRUE(ended_.has_value() && ended_->ok()) << "the release is said again until it is heard";
}

TEST_F(HandoverTest, HostileNotesAreDroppedAndCounted) {
  Introduce();
  const KvTicket ticket = Open();
  Start(&reader_, ticket, 1, &result_);
  Run(absl::Milliseconds(20));
  auto attacker = fabric_.CreateTransport();
  const PeerId to_owner = *attacker->Connect(owner_.transport->address());
  const PeerId to_reader = *attacker->Connect(reader_.transport->address());
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    KvNote note;
    note.type = static_cast<KvNote::Type>(1 + random() % 7);
    note.from = random() % 3 == 0 ? kOwner : random() % 2 == 0 ? kReader : random();
    note.to = random() % 2 == 0 ? kOwner : kReader;
    note.nonce = random();
    note.handover_id = ticket.handover_id + random() % 2;
    note.secret = std::string(kSecretBytes, static_cast<char>(random()));
    note.attempt = random() % 3;
    note.full_blocks = random();
    note.partial_blocks = random();
    note.partial_layers = random();
    note.complete = random() % 2;
    note.payload = std::string(random() % 100, 'x');
    note.outcome = static_cast<KvNote::Outcome>(random() % 3);
    // Even a worker that knows the hand-over's secret may send nonsense.
    if (random() % 4 == 0 && note.type == KvNote::Type::kState) note.secret = ticket.secret;
    std::string bytes = EncodeNote(note);
    if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (random() % 3 == 0 && !bytes.empty()) bytes[random() % bytes.size()] = random();
    (void)attacker->SendNote(random() % 2 == 0 ? to_owner : to_reader, bytes);
    if (i % 100 == 0) Step();
  }
  Run(absl::Milliseconds(20));
  EXPECT_FALSE(result_.has_value());
  EXPECT_GT(owner_.plane->counters().malformed, 100u);
  EXPECT_GT(owner_.plane->counters().misdirected, 100u);
  EXPECT_GT(owner_.plane->counters().unknown_peer, 100u);
  EXPECT_GT(owner_.plane->counters().refused, 100u);
  EXPECT_GT(reader_.plane->counters().malformed, 100u);
  PublishAll(ticket);
  Run(absl::Milliseconds(20));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
}

// The reads overlap, so at least one is always under way. The pull must not count as stalled as
// long as reads keep ending.
TEST_F(HandoverTest, APullThatTakesLongerThanTheStallLimitIsNotStuckWhileBytesArrive) {
  TestWorker narrow(&fabric_, true, 205, kHandoverLayout, 64, 6, &now_, {},
                    {.stall = absl::Seconds(2),
                     .in_flight_bytes = 2 * kHandoverLayout.LayerBytes(),
                     .piece_bytes = kHandoverLayout.LayerBytes()});
  owner_.plane->SetPeers({narrow.AsPeer()});
  narrow.plane->SetPeers({owner_.AsPeer()});
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      Step(absl::Milliseconds(10));
      narrow.plane->RunOnce(now_);
    }
  };
  run(60);
  ASSERT_EQ(narrow.plane->links().size(), 1u);
  FaultyTransport::Faults slow;
  slow.read_delay_min = absl::Milliseconds(700);
  slow.read_delay_max = absl::Milliseconds(1300);
  narrow.transport->SetFaults(slow);
  const auto blocks = owner_.pool->Take(8);
  const KvTicket ticket = owner_.publisher->Open(
      blocks, 32, [this, blocks](absl::Status) { owner_.pool->Return(blocks); });
  owner_.publisher->Publish(ticket.handover_id, 32, kHandoverLayout.layers);
  owner_.publisher->Complete(ticket.handover_id, "");
  narrow.puller->Start(ticket, 1, narrow.pool->Take(8),
                       [this](PullResult result) { result_ = std::move(result); });
  const absl::Time started = now_;
  while (!result_.has_value() && now_ < started + absl::Seconds(60)) run(1);
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->status.ok()) << result_->status;
  EXPECT_GT(now_ - started, absl::Seconds(6));
}

TEST_F(HandoverTest, InFlightBytesStayBoundedAndEveryPullMoves) {
  const size_t bound = 2 * kHandoverLayout.BlockBytes();
  TestWorker narrow(&fabric_, true, 204, kHandoverLayout, 64, 5, &now_, {},
                    {.in_flight_bytes = bound, .piece_bytes = kHandoverLayout.LayerBytes()});
  owner_.plane->SetPeers({narrow.AsPeer()});
  narrow.plane->SetPeers({owner_.AsPeer()});
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      narrow.plane->RunOnce(now_);
    }
  };
  run(300);
  ASSERT_EQ(narrow.plane->links().size(), 1u);
  FaultyTransport::Faults slow;
  slow.read_delay_min = slow.read_delay_max = absl::Milliseconds(10);
  narrow.transport->SetFaults(slow);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    const auto blocks = owner_.pool->Take(8);
    const KvTicket ticket = owner_.publisher->Open(
        blocks, 32, [this, blocks](absl::Status) { owner_.pool->Return(blocks); });
    owner_.publisher->Publish(ticket.handover_id, 32, kHandoverLayout.layers);
    if (i == 2) owner_.publisher->Complete(ticket.handover_id, "");
    const auto ours = narrow.pool->Take(8);
    narrow.puller->Start(ticket, 1, ours, [&order, i](PullResult result) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      order.push_back(i);
    });
    if (i < 2) {
      // The owner completes the first two hand-overs later than the third, so the third pull must
      // end first.
      run(3);
    }
  }
  for (int i = 0; i < 1000; ++i) {
    run(1);
    // At most bound / LayerBytes() reads of one slice each are under way. In addition, each of the
    // three pulls may read its generations and its checksums.
    EXPECT_LE(narrow.transport->reads_outstanding(), bound / kHandoverLayout.LayerBytes() + 6);
    if (i == 200) {
      EXPECT_EQ(order, std::vector<int>({2}));
      owner_.publisher->Complete(1, "");
      owner_.publisher->Complete(2, "");
    }
  }
  EXPECT_EQ(order.size(), 3u);
}

}  // namespace
}  // namespace baton
