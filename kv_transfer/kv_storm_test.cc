#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "common/base/histories.h"
#include "common/base/log.h"
#include "gtest/gtest.h"
#include "kv_transfer/kv_test_world.h"

namespace baton {
namespace {

constexpr KvLayout kStormLayout{.layers = 3, .kv_heads = 1, .head_dim = 8, .block_tokens = 4};
constexpr int kStormBlocks = 40;
constexpr int kWorkers = 2;  // workers of each role

// Two owners and two readers, with actions chosen by one seed. Hand-overs are opened, published
// piece by piece, pulled, cancelled, aborted and retried, over transports that delay, lose, tear,
// corrupt, stall and fail. Blocks are reused last-in-first-out, as soon as they come back.
class Storm {
 public:
  explicit Storm(uint64_t seed) : random_(seed), fabric_({.single_threaded = true}) {
    for (int i = 0; i < kWorkers; ++i) {
      owners_.push_back(std::make_unique<TestWorker>(
          &fabric_, false, 101 + i, kStormLayout, kStormBlocks, seed * 7 + i, &now_,
          KvPublisher::Options{.lease = absl::Seconds(2)}));
      readers_.push_back(std::make_unique<TestWorker>(
          &fabric_, true, 201 + i, kStormLayout, kStormBlocks, seed * 7 + 4 + i, &now_,
          KvPublisher::Options{},
          KvPuller::Options{.stall = absl::Seconds(1),
                            .in_flight_bytes = 8 * kStormLayout.BlockBytes(),
                            .piece_bytes = 3 * kStormLayout.BlockBytes()}));
    }
    Introduce();
  }

  void Run() {
    for (int step = 0; step < 400; ++step) {
      if (step % 40 == 10) SetFaults(Pick(3) != 0);
      Act();
      Step(absl::Microseconds(Pick(20000)));
    }
    // From now on there are no faults, so every hand-over and every pull must end.
    stopped_owner_ = -1;
    SetFaults(false);
    for (auto& [id, handover] : handovers_) {
      if (!handover.ended && !handover.complete) Abort(&handover);
    }
    for (int step = 0; step < 400 && !Quiet(); ++step) Step(absl::Milliseconds(20));
    EXPECT_EQ(started_, finished_);
    for (auto& reader : readers_) {
      EXPECT_EQ(reader->puller->running_pulls(), 0);
      EXPECT_EQ(reader->transport->reads_outstanding(), 0u);
      EXPECT_EQ(reader->plane->links().size(), size_t{kWorkers});
    }
    for (auto& owner : owners_) {
      EXPECT_EQ(owner->publisher->open_handovers(), 0);
      EXPECT_EQ(owner->pool->free(), size_t{kStormBlocks});
    }
    while (!held_.empty()) Give(0);
    for (auto& reader : readers_) EXPECT_EQ(reader->pool->free(), size_t{kStormBlocks});
  }

  int right() const { return right_; }
  int failed() const { return failed_; }

 private:
  struct Handover {
    uint64_t content = 0;
    int owner = 0;
    KvTicket ticket;
    std::vector<BlockId> blocks;
    int tokens = 0, layers = 0;
    bool complete = false;
    bool ended = false;
    uint32_t attempts = 0;
  };
  // Blocks that a reader holds: either a pull fills them, or a sequence of the reader uses them.
  // Nothing else may write to them.
  struct Held {
    int reader;
    std::vector<BlockId> blocks;
    std::vector<uint64_t> contents;
  };

  int Pick(int n) { return static_cast<int>(random_() % n); }

  void Introduce() {
    std::vector<KvPeer> owners, readers;
    for (auto& owner : owners_) owners.push_back(owner->AsPeer());
    for (auto& reader : readers_) readers.push_back(reader->AsPeer());
    for (auto& owner : owners_) owner->plane->SetPeers(readers);
    for (auto& reader : readers_) reader->plane->SetPeers(owners);
    for (int i = 0; i < 20; ++i) Step(absl::Milliseconds(10));
  }

  void Step(absl::Duration by) {
    now_ += by;
    for (int i = 0; i < kWorkers; ++i) {
      if (i != stopped_owner_) owners_[i]->plane->RunOnce(now_);
      readers_[i]->plane->RunOnce(now_);
    }
  }

  void SetFaults(bool any) {
    for (auto* workers : {&owners_, &readers_}) {
      for (auto& worker : *workers) {
        FaultyTransport::Faults faults;
        if (any) {
          faults.note_delay_max = absl::Milliseconds(Pick(2) * Pick(50));
          faults.read_delay_max = absl::Milliseconds(Pick(100));
          faults.drop_note = Pick(3) == 0 ? 0.2 : 0;
          faults.fail_read = Pick(6) == 0 ? 0.02 : 0;
          faults.corrupt_read = Pick(4) == 0 ? 0.02 : 0;
          faults.stall_read = Pick(4) == 0 ? 0.02 : 0;
          faults.tear_read = Pick(2) == 0 ? 0.3 : 0;
          faults.shuffle_reads = Pick(2) == 0;
        }
        worker->transport->SetFaults(faults);
        worker->transport->CutAll(any && Pick(12) == 0);
      }
    }
    stopped_owner_ = any && Pick(5) == 0 ? Pick(kWorkers) : -1;
  }

  void Act() {
    switch (Pick(8)) {
      case 0:
      case 1:
        return Open();
      case 2:
      case 3:
      case 4:
        return Publish();
      case 5:
        if (!running_.empty() && Pick(4) == 0) {
          const auto& [reader, pull] = running_[Pick(static_cast<int>(running_.size()))];
          readers_[reader]->puller->Cancel(pull);
        }
        return;
      case 6:
        if (!held_.empty()) Give(Pick(static_cast<int>(held_.size())));
        return;
      case 7:
        return Own();
    }
  }

  // Takes free blocks for a new sequence of the reader, and writes to them.
  void Own() {
    const int reader = Pick(kWorkers);
    const int n = 1 + Pick(4);
    if (readers_[reader]->pool->free() < size_t(n)) return;
    Held held{reader, readers_[reader]->pool->Take(n), {}};
    for (const BlockId block : held.blocks) {
      held.contents.push_back(++contents_);
      for (int layer = 0; layer < kStormLayout.layers; ++layer) {
        FillSlice(readers_[reader]->plane.get(), block, layer, contents_);
      }
    }
    held_.push_back(std::move(held));
  }

  void Open() {
    const int owner = Pick(kWorkers);
    const int tokens = 1 + Pick(30);
    const int n = kStormLayout.BlocksFor(tokens);
    if (owners_[owner]->pool->free() < size_t(n)) return;
    const uint64_t id = ++ids_;
    Handover& handover = handovers_[id];
    handover.owner = owner;
    handover.content = contents_ + 1;
    contents_ += n;
    handover.blocks = owners_[owner]->pool->Take(n);
    handover.ticket =
        owners_[owner]->publisher->Open(handover.blocks, tokens, [this, id](absl::Status) {
          Handover& ended = handovers_[id];
          EXPECT_FALSE(ended.ended);
          ended.ended = true;
          owners_[ended.owner]->pool->Return(ended.blocks);
        });
    Pull(&handover);
  }

  void Abort(Handover* handover) {
    handover->ended = true;
    // It may have ended in this turn with an error that nobody was told.
    owners_[handover->owner]->publisher->Abort(handover->ticket.handover_id).IgnoreError();
    owners_[handover->owner]->pool->Return(handover->blocks);
  }

  void Publish() {
    for (int tries = 0; tries < 8; ++tries) {
      auto it = handovers_.begin();
      std::advance(it, Pick(std::max<int>(1, static_cast<int>(handovers_.size()))));
      if (it == handovers_.end()) return;
      Handover& handover = it->second;
      if (handover.ended || handover.complete || handover.owner == stopped_owner_) continue;
      if (Pick(30) == 0) return Abort(&handover);
      TestWorker& owner = *owners_[handover.owner];
      const int all = handover.ticket.tokens;
      int tokens = handover.tokens, layers = handover.layers;
      if (tokens == 0 || layers == kStormLayout.layers) {
        if (tokens == all) {
          owner.publisher->Complete(handover.ticket.handover_id, std::to_string(handover.content));
          handover.complete = true;
          return;
        }
        tokens = std::min(all, tokens + kStormLayout.block_tokens * (1 + Pick(3)));
        layers = 0;
      }
      layers += 1 + Pick(kStormLayout.layers - layers);
      for (int i = handover.layers == kStormLayout.layers ? kStormLayout.BlocksFor(handover.tokens)
                                                          : 0;
           i < kStormLayout.BlocksFor(tokens); ++i) {
        for (int layer = 0; layer < layers; ++layer) {
          FillSlice(owner.plane.get(), handover.blocks[i], layer, handover.content + i);
        }
      }
      handover.tokens = tokens;
      handover.layers = layers;
      owner.publisher->Publish(handover.ticket.handover_id, tokens, layers);
      return;
    }
  }

  void Pull(Handover* handover) {
    const int reader = Pick(kWorkers);
    const int n = static_cast<int>(handover->blocks.size());
    if (readers_[reader]->pool->free() < size_t(n)) return;
    const auto blocks = readers_[reader]->pool->Take(n);
    ++started_;
    auto pull = std::make_shared<uint64_t>(0);
    const uint64_t content = handover->content;
    *pull = readers_[reader]->puller->Start(
        handover->ticket, ++handover->attempts, blocks,
        [this, reader, blocks, pull, content, handover](PullResult result) {
          Ended(reader, *pull, blocks, content, handover, result);
        });
    running_.push_back({reader, *pull});
  }

  void Ended(int reader, uint64_t pull, const std::vector<BlockId>& blocks, uint64_t content,
             Handover* handover, const PullResult& result) {
    const auto it = std::find(running_.begin(), running_.end(), std::make_pair(reader, pull));
    ASSERT_NE(it, running_.end()) << "ended twice";
    running_.erase(it);
    ++finished_;
    if (result.status.ok()) {
      ++right_;
      EXPECT_EQ(result.payload, std::to_string(content));
      Held held{reader, blocks, {}};
      for (size_t i = 0; i < blocks.size(); ++i) held.contents.push_back(content + i);
      Check(held);
      held_.push_back(std::move(held));
      return;
    }
    ++failed_;
    readers_[reader]->pool->Return(blocks);
    if (Pick(2) == 0) Own();
    if (handover->attempts < 4 && Pick(2) == 0) Pull(handover);
  }

  void Check(const Held& held) {
    for (size_t i = 0; i < held.blocks.size(); ++i) {
      for (int layer = 0; layer < kStormLayout.layers; ++layer) {
        EXPECT_TRUE(
            SliceIs(readers_[held.reader]->plane.get(), held.blocks[i], layer, held.contents[i]))
            << "block " << held.blocks[i] << " of reader " << held.reader << " was overwritten";
      }
    }
  }

  void Give(int i) {
    Check(held_[i]);
    readers_[held_[i].reader]->pool->Return(held_[i].blocks);
    held_.erase(held_.begin() + i);
  }

  bool Quiet() {
    bool quiet = running_.empty();
    for (auto& owner : owners_) quiet &= owner->publisher->open_handovers() == 0;
    for (auto& reader : readers_) {
      quiet &= reader->transport->reads_outstanding() == 0;
      quiet &= reader->plane->links().size() == kWorkers;
    }
    return quiet;
  }

  std::mt19937_64 random_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<TestWorker>> owners_, readers_;
  int stopped_owner_ = -1;
  uint64_t ids_ = 0;
  uint64_t contents_ = 0;
  std::map<uint64_t, Handover> handovers_;
  std::vector<Held> held_;
  std::vector<std::pair<int, uint64_t>> running_;
  int started_ = 0, finished_ = 0, right_ = 0, failed_ = 0;
};

TEST(KvStormTest, EveryPullEndsOnceRightOrFailedAndNothingLeaks) {
  const int seeds = Histories(150, 1000);
  const char* only = std::getenv("BATON_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  int right = 0, failed = 0;
  SetLogLevel(only != nullptr ? Severity::kInfo : Severity::kError);
  for (uint64_t seed = first; seed < first + (only != nullptr ? 1 : seeds); ++seed) {
    SCOPED_TRACE(testing::Message() << "BATON_SEED=" << seed);
    Storm storm(seed);
    storm.Run();
    right += storm.right();
    failed += storm.failed();
    if (testing::Test::HasFailure()) break;
  }
  SetLogLevel(Severity::kInfo);
  std::printf("%d pulls right, %d failed with a status\n", right, failed);
  if (only == nullptr) {
    EXPECT_GT(right, seeds * 10);
    EXPECT_GT(failed, seeds * 5);
  }
}

}  // namespace
}  // namespace baton
