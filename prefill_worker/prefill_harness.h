#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/engine/fake_model.h"
#include "common/kv_cache/block_pool.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {

inline constexpr int kVocab = 128;
inline constexpr int kContext = 128;
inline constexpr int kBlockTokens = 4;
inline constexpr TokenId kPoison = 127;

// Fixture with a prefill worker and a reader of its KV, in one thread and virtual time. The work of
// the KV thread is kept in a queue, and the test decides when to run it.
class PrefillWorkerTest : public ::testing::Test {
 protected:
  struct Record {
    std::optional<KvTicket> ticket;
    int cached = 0;  // tokens that were found in the prefix cache
    std::vector<SampledToken> prompt;
    std::optional<PrefillFirstToken> first;
    std::optional<absl::Status> ended;
  };

  PrefillWorkerTest()
      : model_(Model::WithoutWeights(FakeModelConfig(kVocab, kContext))),
        layout_(model_->LayoutFor(kBlockTokens, DType::kF16)) {
    SetLogLevel(Severity::kError);
  }

  void Stop() {
    worker_.reset();
    kv_work_.clear();
    publisher_.reset();
    puller_.reset();
    owner_.reset();
    reader_.reset();
  }
  // Starts with a new worker. Nothing is left of the previous one.
  void Start(int blocks = 64, PrefillWorker::Options options = {}) {
    Stop();
    owner_transport_ = fabric_.CreateTransport();
    reader_transport_ = fabric_.CreateTransport();
    owner_ =
        KvPlane::Create(owner_transport_.get(),
                        {.epoch = 1, .numerics_id = "fake-v2", .layout = layout_, .blocks = blocks})
            .value();
    reader_ = KvPlane::Create(reader_transport_.get(), {.epoch = 2,
                                                        .numerics_id = "fake-v2",
                                                        .layout = layout_,
                                                        .blocks = 64,
                                                        .proves_links = true})
                  .value();
    publisher_ = KvPublisher::Create(owner_.get(), {.owner = "owner"});
    puller_ = KvPuller::Create(reader_.get(), {});
    reader_pool_ = std::make_unique<BlockPool>(64, reader_->generations());
    owner_->SetPeers({{2, "reader", reader_->address()}});
    reader_->SetPeers({{1, "owner", owner_->address()}});
    backend_ = CreateFakeBackend({.per_step = absl::Milliseconds(2),
                                  .spend = [this](absl::Duration d) { spent_ += d; },
                                  .nan_after = kPoison});
    options_ = options;
    options_.cache.check_content = true;
    if (options_.chunk_tokens == PrefillWorker::Options().chunk_tokens) options_.chunk_tokens = 8;
    worker_ = PrefillWorker::Create(options_, model_.get(), backend_.get(), owner_.get(),
                                    publisher_.get(),
                                    [this](std::function<void()> work) {
                                      ++kv_calls_;
                                      kv_work_.push_back(std::move(work));
                                    })
                  .value();
    while (reader_->links().empty()) {
      now_ += absl::Milliseconds(1);
      Settle();
    }
  }

  bool KvTurn() {
    bool worked = !kv_work_.empty();
    while (!kv_work_.empty()) {
      auto work = std::move(kv_work_.front());
      kv_work_.pop_front();
      work();
    }
    worked |= owner_->RunOnce(now_);
    worked |= reader_->RunOnce(now_);
    return worked;
  }
  bool WorkerTurn() {
    spent_ = absl::ZeroDuration();
    const bool worked = worker_->RunOnce(now_);
    now_ += spent_;
    return worked;
  }
  void Settle() {
    // A KV plane handles a message only in the turn after the other plane has sent it. So one idle
    // turn does not prove that nothing is left to do.
    for (int idle = 0; idle < 4; ++idle) {
      if (KvTurn() | WorkerTurn()) idle = 0;
    }
  }

  PrefillJob Job(std::vector<TokenId> tokens, int max_tokens = 10) {
    PrefillJob job;
    job.request_id = "r";
    job.original_prompt_tokens = static_cast<int>(tokens.size());
    job.tokens = std::move(tokens);
    job.sampling.max_tokens = max_tokens;
    job.arrival = now_;
    return job;
  }
  std::vector<TokenId> Prompt(int n) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random_() % (kVocab - 1)));
    return tokens;
  }
  absl::StatusOr<PrefillWorker::JobId> Submit(PrefillJob job, Record* record) {
    return worker_->Submit(std::move(job), [record](PrefillUpdate update) {
      EXPECT_FALSE(record->ended);
      if (auto* begun = std::get_if<PrefillBegun>(&update)) {
        EXPECT_FALSE(record->ticket);
        EXPECT_FALSE(record->first);
        record->ticket = std::move(begun->ticket);
        record->cached = begun->cached_tokens;
      } else if (auto* prompt = std::get_if<PrefillPromptTokens>(&update)) {
        EXPECT_TRUE(record->ticket);
        EXPECT_FALSE(record->first);
        EXPECT_FALSE(prompt->tokens.empty());
        record->prompt.insert(record->prompt.end(), prompt->tokens.begin(), prompt->tokens.end());
      } else if (auto* first = std::get_if<PrefillFirstToken>(&update)) {
        EXPECT_TRUE(record->ticket);
        EXPECT_FALSE(record->first);
        record->first = std::move(*first);
      } else {
        record->ended = std::get<PrefillEnded>(update).status;
      }
    });
  }
  void ExpectAllBack() {
    EXPECT_EQ(worker_->Load().free_blocks, worker_->Load().total_blocks);
    EXPECT_EQ(worker_->Load().waiting, 0);
    EXPECT_EQ(worker_->Load().waiting_tokens, 0);
    EXPECT_EQ(worker_->Load().running, 0);
    EXPECT_EQ(worker_->Load().leases, 0);
    EXPECT_EQ(worker_->jobs(), 0);
    EXPECT_EQ(publisher_->open_handovers(), 0);
  }

  absl::Time now_ = absl::UnixEpoch();
  absl::Duration spent_;
  std::mt19937 random_{1};
  std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  InProcessFabric fabric_{{.single_threaded = true}};
  std::unique_ptr<Transport> owner_transport_, reader_transport_;
  std::unique_ptr<KvPlane> owner_, reader_;
  std::unique_ptr<KvPublisher> publisher_;
  std::unique_ptr<KvPuller> puller_;
  std::unique_ptr<BlockPool> reader_pool_;
  std::unique_ptr<Backend> backend_;
  std::deque<std::function<void()>> kv_work_;
  int kv_calls_ = 0;
  PrefillWorker::Options options_;
  std::unique_ptr<PrefillWorker> worker_;
};

}  // namespace baton
