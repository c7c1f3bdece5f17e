#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/engine/engine.h"
#include "common/engine/fake_model.h"
#include "common/engine/handover_note.h"
#include "common/engine/late_backend.h"
#include "common/kv_cache/block_pool.h"
#include "decode_worker/decode_worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/testing/faulty_transport.h"
#include "kv_transfer/testing/inprocess_transport.h"

// For tests: a fixture with one DecodeWorker, and an owner of the KV that the worker pulls.
namespace baton {

inline constexpr int kVocab = 128;
inline constexpr int kContext = 128;
inline constexpr int kBlockTokens = 4;

// Backend of the worker under test. kPlain runs each step when it is started. kLatest and kLate
// sample on the device and run a step some time after it was started: kLatest only when the worker
// waits for its end, kLate at an earlier moment that a seed decides.
enum class Backends { kPlain, kLatest, kLate };

// Fixture with a decode worker and an owner of KV, in one thread and virtual time. The work of the
// KV thread is kept in a queue, and the test decides when to run it.
class DecodeWorkerTest : public ::testing::TestWithParam<Backends> {
 protected:
  // All reports about one job.
  struct Record {
    bool reserved = false;
    int cached = 0;                    // tokens that DecodeReserved reports as cached
    std::vector<SampledToken> prompt;  // prompt tokens with their logprobs
    std::vector<SampledToken> tokens;
    std::optional<DecodeFinished> finished;
    bool outgrown = false;
    std::optional<absl::Status> ended;

    std::vector<TokenId> ids() const {
      std::vector<TokenId> ids;
      for (const SampledToken& token : tokens) ids.push_back(token.id);
      return ids;
    }
  };
  // A prompt whose KV the owner holds, and the right answer to the prompt.
  struct Handover {
    KvTicket ticket;
    std::vector<TokenId> prompt, answer;
    std::optional<absl::Status> ended;
  };

  DecodeWorkerTest() : DecodeWorkerTest(FakeModelConfig(kVocab, kContext)) {}
  explicit DecodeWorkerTest(const ModelConfig& config)
      : model_(Model::WithoutWeights(config)),
        layout_(model_->LayoutFor(kBlockTokens, DType::kF16)) {
    SetLogLevel(Severity::kError);
  }

  // Destroys the worker, the owner and all that they use, in a safe order.
  void Stop() {
    ExpectNoBlockLost();
    worker_.reset();
    kv_work_.clear();
    publisher_.reset();
    puller_.reset();
    owner_.reset();
    reader_.reset();
    faulty_.reset();
  }
  // Starts with a new worker and a new owner. Nothing is left of the previous ones.
  void Start(int blocks = 64, DecodeWorker::Options options = {}) {
    Stop();
    options.cache.check_content = true;
    owner_transport_ = fabric_.CreateTransport();
    reader_transport_ = fabric_.CreateTransport();
    faulty_ =
        std::make_unique<FaultyTransport>(reader_transport_.get(), 1, [this] { return now_; });
    owner_ =
        KvPlane::Create(owner_transport_.get(),
                        {.epoch = 1, .numerics_id = "fake-v2", .layout = layout_, .blocks = 512})
            .value();
    reader_ = KvPlane::Create(faulty_.get(), {.epoch = 2,
                                              .numerics_id = "fake-v2",
                                              .layout = layout_,
                                              .blocks = blocks,
                                              .proves_links = true})
                  .value();
    publisher_ = KvPublisher::Create(owner_.get(), {.owner = "owner"});
    puller_ = KvPuller::Create(reader_.get(), {});
    owner_pool_ = std::make_unique<BlockPool>(512, owner_->generations());
    owner_backend_ = CreateFakeBackend();
    owner_engine_ =
        Engine::Create(model_.get(), owner_backend_.get(), {owner_->pool(), layout_}, kContext)
            .value();
    owner_->SetPeers({{2, "reader", reader_->address()}});
    reader_->SetPeers({{1, "owner", owner_->address()}});
    const FakeBackendOptions fake = {.per_step = absl::Milliseconds(2),
                                     .spend = [this](absl::Duration d) { spent_ += d; },
                                     .nan_after = poison_};
    late_ = nullptr;
    if (backends_ == Backends::kPlain) {
      backend_ = CreateFakeBackend(fake);
    } else {
      auto late = std::make_unique<LateBackend>(
          LateBackendOptions{.fake = fake,
                             .seed = backends_ == Backends::kLate ? late_seed_++ : 0,
                             .generations = reader_->generations(),
                             .failing_step = failing_step_,
                             .failing_start = failing_start_});
      late_ = late.get();
      backend_ = std::move(late);
    }
    worker_ = DecodeWorker::Create(
                  options, model_.get(), backend_.get(), reader_.get(), puller_.get(),
                  [this](std::function<void()> work) { kv_work_.push_back(std::move(work)); })
                  .value();
    while (reader_->links().empty()) {
      now_ += absl::Milliseconds(1);
      Settle();
    }
  }

  // Runs the queued work of the KV thread, and each KV plane once. Returns true if anything
  // happened.
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
  // Calls the worker's RunOnce, and moves the clock by the time that its step took. Returns true if
  // anything happened.
  bool WorkerTurn() {
    spent_ = absl::ZeroDuration();
    const bool worked = worker_->RunOnce(now_);
    now_ += spent_;
    return worked;
  }
  // Runs the work of the KV thread and of the worker until neither has anything left to do.
  void Settle() {
    for (int idle = 0; idle < 4; ++idle) {
      if (KvTurn() | WorkerTurn()) idle = 0;
    }
  }

  // Computes a prompt of `n` tokens at the owner, which stands for a prefill worker, and opens its
  // hand-over. Publishes no KV; Complete does that. `answer` is the number of tokens of the right
  // answer.
  std::unique_ptr<Handover> Open(int n, int answer = 20, TokenId last = 1) {
    std::vector<TokenId> prompt = RandomTokens(n - 1);
    prompt.push_back(last);
    return OpenPrompt(std::move(prompt), answer);
  }
  std::vector<TokenId> RandomTokens(int n) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random_() % (kVocab - 1)));
    return tokens;
  }
  // Does what Open does, for this prompt.
  std::unique_ptr<Handover> OpenPrompt(std::vector<TokenId> prompt, int answer) {
    const int n = static_cast<int>(prompt.size());
    auto handover = std::make_unique<Handover>();
    handover->prompt = std::move(prompt);
    handover->answer = FakeContinuation(layout_, handover->prompt, kVocab, answer);
    const auto blocks = owner_pool_->Take(layout_.BlocksFor(n)).value();
    EXPECT_TRUE(owner_engine_->Run({{{.tokens = handover->prompt, .blocks = blocks}}}).ok());
    handover->ticket =
        publisher_->Open(blocks, n, [this, blocks, h = handover.get()](absl::Status status) {
          h->ended = status;
          owner_pool_->Release(blocks);
        });
    return handover;
  }
  // Publishes the KV and completes the hand-over. The reader gets `payload` or, if it is not set,
  // an encoded HandoverNote with the right first token.
  void Complete(const Handover& handover, std::optional<std::string> payload = std::nullopt) {
    const int n = static_cast<int>(handover.prompt.size());
    HandoverNote note;
    note.first_token = {.id = handover.answer[0], .position = n};
    publisher_->Publish(handover.ticket.handover_id, n, layout_.layers);
    publisher_->Complete(handover.ticket.handover_id, payload.value_or(note.Encode()));
  }
  // Computes a prompt of `n` tokens at the owner and completes its hand-over. `answer` is the
  // number of tokens of the right answer.
  std::unique_ptr<Handover> Ready(int n, int answer = 20) {
    auto handover = Open(n, answer);
    Complete(*handover);
    return handover;
  }
  DecodeJob Job(const Handover& handover, int max_tokens = 20) {
    DecodeJob job;
    job.request_id = "r";
    job.ticket = handover.ticket;
    job.tokens = handover.prompt;
    job.original_prompt_tokens = static_cast<int>(handover.prompt.size());
    job.sampling.max_tokens = max_tokens;
    return job;
  }
  // A prompt that the worker computes itself, and the right answer to the prompt.
  struct Prompt {
    DecodeJob job;
    std::vector<TokenId> answer;
  };
  Prompt Colocated(int n, int max_tokens = 20) {
    Prompt prompt;
    prompt.job.request_id = "c";
    prompt.job.tokens = RandomTokens(n);
    prompt.job.original_prompt_tokens = n;
    prompt.job.sampling.max_tokens = max_tokens;
    prompt.answer = FakeContinuation(layout_, prompt.job.tokens, kVocab, max_tokens);
    return prompt;
  }
  // Submits a job, checks the order of its reports, and keeps them in `record`, which must outlive
  // the job.
  absl::StatusOr<DecodeWorker::JobId> Submit(DecodeJob job, Record* record) {
    return worker_->Submit(std::move(job), [record](DecodeUpdate update) {
      EXPECT_FALSE(record->ended);
      if (const auto* reserved = std::get_if<DecodeReserved>(&update)) {
        EXPECT_FALSE(record->reserved);
        record->reserved = true;
        record->cached = reserved->cached_tokens;
      } else if (auto* prompt = std::get_if<DecodePromptTokens>(&update)) {
        EXPECT_TRUE(record->reserved);
        EXPECT_TRUE(record->tokens.empty());
        for (SampledToken& token : prompt->tokens) record->prompt.push_back(token);
      } else if (auto* tokens = std::get_if<DecodeTokens>(&update)) {
        EXPECT_TRUE(record->reserved);
        for (SampledToken& token : tokens->tokens) record->tokens.push_back(token);
      } else if (auto* finished = std::get_if<DecodeFinished>(&update)) {
        EXPECT_FALSE(record->finished);
        record->finished = *finished;
      } else if (std::holds_alternative<DecodeOutgrown>(update)) {
        EXPECT_FALSE(record->finished);
        record->outgrown = true;
      } else {
        record->ended = std::get<DecodeEnded>(update).status;
        EXPECT_EQ(record->ended->ok(), record->finished.has_value());
      }
    });
  }
  // Checks that no job, pull or block is left in use.
  void ExpectAllBack() {
    EXPECT_EQ(worker_->Load().free_blocks, worker_->Load().total_blocks);
    EXPECT_EQ(worker_->Load().running, 0);
    EXPECT_EQ(worker_->Load().waiting, 0);
    EXPECT_EQ(worker_->jobs(), 0);
    EXPECT_EQ(puller_->running_pulls(), 0);
    ExpectNoBlockLost();
  }
  // Checks that no step ran on a block that its sequence no longer owned.
  void ExpectNoBlockLost() {
    if (late_ == nullptr) return;
    EXPECT_EQ(late_->lost_blocks(), 0u) << late_->first_lost();
  }
  // Returns the number of steps that run while the next one is planned.
  int behind() const { return late_ != nullptr ? 1 : 0; }

  absl::Time now_ = absl::UnixEpoch();
  absl::Duration spent_;
  std::mt19937 random_{1};
  TokenId poison_ = -1;
  Backends backends_ = GetParam();
  std::optional<uint64_t> failing_step_, failing_start_;
  uint64_t late_seed_ = 1;
  std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  InProcessFabric fabric_{{.single_threaded = true}};
  std::unique_ptr<Transport> owner_transport_, reader_transport_;
  std::unique_ptr<FaultyTransport> faulty_;
  std::unique_ptr<KvPlane> owner_, reader_;
  std::unique_ptr<KvPublisher> publisher_;
  std::unique_ptr<KvPuller> puller_;
  std::unique_ptr<BlockPool> owner_pool_;
  std::unique_ptr<Backend> owner_backend_, backend_;
  LateBackend* late_ = nullptr;  // backend_ if that is a LateBackend, else null
  std::unique_ptr<Engine> owner_engine_;
  std::deque<std::function<void()>> kv_work_;
  std::unique_ptr<DecodeWorker> worker_;
};

inline std::string BackendsName(const ::testing::TestParamInfo<Backends>& info) {
  constexpr const char* kNames[] = {"Plain", "Latest", "Late"};
  return kNames[static_cast<int>(info.param)];
}
// Instantiates a suite for each kind of backend.
#define BATON_ALL_BACKENDS(suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(                                                                     \
      Backends, suite, ::testing::Values(Backends::kPlain, Backends::kLatest, Backends::kLate), \
      BackendsName)

}  // namespace baton
