#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"
#include "common/base/wakeup.h"
#include "common/engine/fake_model.h"
#include "decode_worker/decode_worker.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"
#include "kv_transfer/inprocess_transport.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {
namespace {

constexpr int kVocab = 128;
constexpr int kContext = 160;
constexpr int kBlockTokens = 8;
constexpr int kBlocks = 96;  // some requests have to wait, some decode sequences are preempted
constexpr int kCallers = 6;
constexpr int kRequests = 200;  // of each caller
constexpr uint32_t kSeed = 20261121;

// What every worker process is made of, without gRPC: a core with its loop, a KV plane with its.
template <typename Core>
struct Worker {
  explicit Worker(InProcessFabric* fabric, WorkerEpoch worker_epoch)
      : epoch(worker_epoch), transport(fabric->CreateTransport()) {}
  ~Worker() { Stop(); }

  void OnKvThread(std::function<void()> work) {
    kv_work.PushAlways(std::move(work));
    if (kv_loop != nullptr) kv_loop->Wake();
  }
  void Start() {
    Loop::Options kv = {.name = "kv", .pulse = &kv_pulse};
    kv.wait = [this](absl::Duration timeout) { transport->Wait(timeout); };
    kv.wake = [this] { transport->Wake(); };
    kv_loop = std::make_unique<Loop>(kv, [this](absl::Time now) { return KvTurn(now); });
    core_loop = std::make_unique<Loop>(Loop::Options{.name = "core", .pulse = &core_pulse},
                                       [this](absl::Time now) { return core->RunOnce(now); });
    wakeup.Set(core_loop.get());
  }
  bool KvTurn(absl::Time now) {
    bool busy = false;
    for (const std::function<void()>& work : kv_work.TakeAll()) {
      work();
      busy = true;
    }
    busy |= plane->RunOnce(now);
    return busy;
  }
  // Afterwards this thread may take the turns.
  void Stop() {
    wakeup.Set(nullptr);
    if (core_loop != nullptr) core_loop->Stop();
    if (kv_loop != nullptr) kv_loop->Stop();
  }

  const WorkerEpoch epoch;
  Wakeup wakeup;
  Pulse core_pulse, kv_pulse;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Backend> backend = CreateFakeBackend();
  std::unique_ptr<KvPlane> plane;
  std::unique_ptr<KvPublisher> publisher;
  std::unique_ptr<KvPuller> puller;
  std::unique_ptr<Core> core;
  Inbox<std::function<void()>> kv_work{0};
  std::unique_ptr<Loop> kv_loop, core_loop;
};

// What the loops have said of one request, for its caller to wait on.
class Record {
 public:
  void Say(PrefillUpdate update) {
    MutexLock lock(&mutex_);
    if (auto* t = std::get_if<KvTicket>(&update)) ticket_ = std::move(*t);
    if (auto* first = std::get_if<PrefillFirstToken>(&update)) {
      first_ = first->token.id;
      last_token_ = first->finish.has_value();
    }
    if (auto* ended = std::get_if<PrefillEnded>(&update)) prefill_ended_ = ended->status;
    changed_.SignalAll();
  }
  void Say(DecodeUpdate update) {
    MutexLock lock(&mutex_);
    if (auto* tokens = std::get_if<DecodeTokens>(&update)) {
      for (const SampledToken& token : tokens->tokens) tokens_.push_back(token.id);
    }
    if (std::holds_alternative<DecodeFinished>(update)) finished_ = true;
    if (auto* ended = std::get_if<DecodeEnded>(&update)) decode_ended_ = ended->status;
    changed_.SignalAll();
  }
  // Null when prefill ended before.
  std::optional<KvTicket> AwaitTicket() {
    MutexLock lock(&mutex_);
    while (!ticket_ && !prefill_ended_) changed_.Wait(&mutex_);
    return ticket_;
  }
  void AwaitTokens(size_t count) {
    MutexLock lock(&mutex_);
    while (tokens_.size() < count && !decode_ended_) changed_.Wait(&mutex_);
  }
  std::optional<TokenId> AwaitFirst() {
    MutexLock lock(&mutex_);
    while (!first_ && !prefill_ended_) changed_.Wait(&mutex_);
    return first_;
  }
  void AwaitPrefillEnded() {
    MutexLock lock(&mutex_);
    while (!prefill_ended_) changed_.Wait(&mutex_);
  }
  absl::Status AwaitDecodeEnded() {
    MutexLock lock(&mutex_);
    while (!decode_ended_) changed_.Wait(&mutex_);
    return *decode_ended_;
  }
  // A try at decode is over and another begins.
  void ForgetDecode() {
    MutexLock lock(&mutex_);
    decode_ended_.reset();
    tokens_.clear();
  }
  bool last_token() {
    MutexLock lock(&mutex_);
    return last_token_;
  }
  bool finished() {
    MutexLock lock(&mutex_);
    return finished_;
  }
  std::vector<TokenId> tokens() {
    MutexLock lock(&mutex_);
    return tokens_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<KvTicket> ticket_ ABSL_GUARDED_BY(mutex_);
  std::optional<TokenId> first_ ABSL_GUARDED_BY(mutex_);
  bool last_token_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<TokenId> tokens_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> prefill_ended_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> decode_ended_ ABSL_GUARDED_BY(mutex_);
};

class WorkerThreadsTest : public ::testing::Test {
 protected:
  WorkerThreadsTest()
      : model_(Model::WithoutWeights(FakeModelConfig(kVocab, kContext))),
        layout_(model_->LayoutFor(kBlockTokens, DType::kF16)) {
    SetLogLevel(Severity::kError);
    for (int i = 0; i < 2; ++i) {
      prefill_.push_back(std::make_unique<Worker<PrefillWorker>>(&fabric_, 1 + i));
      Worker<PrefillWorker>* const p = prefill_.back().get();
      p->plane = Plane(p->transport.get(), p->epoch, false);
      p->publisher = KvPublisher::Create(p->plane.get(), {.owner = absl::StrCat("p", i)});
      p->core =
          PrefillWorker::Create({.chunk_tokens = 32,
                                 .slice_bytes = 1,
                                 .reuse_last_freed = true,
                                 .wake = [p] { p->wakeup.Wake(); },
                                 .pulse = &p->core_pulse},
                                model_.get(), p->backend.get(), p->plane.get(), p->publisher.get(),
                                [p](std::function<void()> w) { p->OnKvThread(std::move(w)); })
              .value();
      decode_.push_back(std::make_unique<Worker<DecodeWorker>>(&fabric_, 11 + i));
      Worker<DecodeWorker>* const d = decode_.back().get();
      d->plane = Plane(d->transport.get(), d->epoch, true);
      d->puller = KvPuller::Create(d->plane.get(), {});
      d->core = DecodeWorker::Create(
                    {.max_batch = 4, .reuse_last_freed = true, .wake = [d] { d->wakeup.Wake(); }},
                    model_.get(), d->backend.get(), d->plane.get(), d->puller.get(),
                    [d](std::function<void()> w) { d->OnKvThread(std::move(w)); })
                    .value();
    }
    std::vector<KvPeer> owners, readers;
    for (const auto& p : prefill_) owners.push_back({p->epoch, "p", p->plane->address()});
    for (const auto& d : decode_) readers.push_back({d->epoch, "d", d->plane->address()});
    for (const auto& p : prefill_) p->plane->SetPeers(readers);
    for (const auto& d : decode_) d->plane->SetPeers(owners);
    for (const auto& p : prefill_) p->Start();
    for (const auto& d : decode_) d->Start();
  }
  ~WorkerThreadsTest() override {
    for (const auto& p : prefill_) p->Stop();
    for (const auto& d : decode_) d->Stop();
  }

  std::unique_ptr<KvPlane> Plane(Transport* transport, WorkerEpoch epoch, bool proves) {
    return KvPlane::Create(transport, {.epoch = epoch,
                                       .numerics_id = "fake-v1",
                                       .layout = layout_,
                                       .blocks = kBlocks,
                                       .proves_links = proves})
        .value();
  }

  // One request as a router would carry it, ended early at a moment that the seed chooses.
  void Ask(std::mt19937& random) {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    std::vector<TokenId> prompt(static_cast<size_t>(pick(1, 100)));
    for (TokenId& token : prompt) token = pick(0, kVocab - 1);
    SamplingOptions sampling;
    sampling.max_tokens = pick(1, 40);
    const std::vector<TokenId> expected =
        FakeContinuation(layout_, prompt, kVocab, sampling.max_tokens);
    const int prompt_tokens = static_cast<int>(prompt.size());
    const int give_up = pick(0, 7);  // 0 to 3: after submit, ticket, first token, some tokens
    auto record = std::make_shared<Record>();
    PrefillWorker& p = *prefill_[pick(0, 1)]->core;
    EXPECT_LE(p.Load().free_blocks, kBlocks);  // as the attach thread asks
    const auto prefill = p.Submit({.request_id = "r",
                                   .tokens = prompt,
                                   .original_prompt_tokens = prompt_tokens,
                                   .sampling = sampling,
                                   .arrival = absl::Now()},
                                  [record](PrefillUpdate u) { record->Say(std::move(u)); });
    ASSERT_TRUE(prefill.ok()) << prefill.status();
    if (give_up == 0) p.Cancel(*prefill);
    const std::optional<KvTicket> ticket = record->AwaitTicket();
    if (!ticket || give_up == 1) {
      p.Cancel(*prefill);
      record->AwaitPrefillEnded();
      return;
    }
    for (uint32_t attempt = 0;; ++attempt) {
      DecodeWorker& d = *decode_[(attempt + prompt.size()) % 2]->core;
      EXPECT_LE(d.Load().free_blocks, kBlocks);
      const auto decode = d.Submit({.request_id = "r",
                                    .attempt = attempt,
                                    .ticket = *ticket,
                                    .tokens = prompt,
                                    .original_prompt_tokens = prompt_tokens,
                                    .sampling = sampling},
                                   [record](DecodeUpdate u) { record->Say(std::move(u)); });
      ASSERT_TRUE(decode.ok()) << decode.status();
      const std::optional<TokenId> first = record->AwaitFirst();
      EXPECT_EQ(first.value_or(expected[0]), expected[0]);
      if (give_up == 2 || record->last_token()) d.Cancel(*decode);
      if (give_up == 3) {
        record->AwaitTokens(static_cast<size_t>(pick(1, 20)));
        d.Cancel(*decode);
      }
      if (give_up == 4) {
        d.SetPaused(*decode, true);
        d.SetPaused(*decode, false);
      }
      const absl::Status ended = record->AwaitDecodeEnded();
      const std::vector<TokenId> tokens = record->tokens();
      ASSERT_LE(tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()));
      // Preempted before anything was pulled: the same ticket again. Afterwards its KV is gone.
      if (absl::IsResourceExhausted(ended) && tokens.empty() && attempt < 20) {
        record->ForgetDecode();
        continue;
      }
      if (ended.ok()) {
        EXPECT_TRUE(record->finished());
        EXPECT_EQ(tokens, expected);
        ++answered_;
      } else if (give_up > 4 && !record->last_token()) {
        EXPECT_TRUE(absl::IsResourceExhausted(ended)) << ended;
      }
      p.Cancel(*prefill);
      record->AwaitPrefillEnded();
      return;
    }
  }

  const std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<Worker<PrefillWorker>>> prefill_;
  std::vector<std::unique_ptr<Worker<DecodeWorker>>> decode_;
  std::atomic<int> answered_ = 0;
};

TEST_F(WorkerThreadsTest, CallersLoopsAndKvThreadsGetEveryTokenRightAndEveryBlockBack) {
  std::printf("seed %u\n", kSeed);
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([this, i] {
      std::mt19937 random(kSeed + static_cast<uint32_t>(i));
      for (int k = 0; k < kRequests && !HasFatalFailure(); ++k) Ask(random);
    });
  }
  for (std::thread& caller : callers) caller.join();
  std::printf("%d of %d requests answered to their end\n", answered_.load(), kCallers * kRequests);
  EXPECT_GT(answered_, kCallers * kRequests / 4);
  for (const auto& p : prefill_) {
    p->core->Drain();
    EXPECT_TRUE(absl::IsUnavailable(
        p->core
            ->Submit({.tokens = {1}, .original_prompt_tokens = 1, .sampling = {.max_tokens = 1}},
                     [](PrefillUpdate) {})
            .status()));
    p->Stop();
    EXPECT_GT(p->core_pulse.beats(), 0u);
    EXPECT_GT(p->kv_pulse.beats(), 0u);
  }
  for (const auto& d : decode_) d->Stop();
  // The last releases may still be on their way between the threads that were.
  const auto all_back = [this] {
    for (const auto& p : prefill_) {
      if (p->core->jobs() > 0 || p->core->Load().free_blocks < kBlocks) return false;
    }
    for (const auto& d : decode_) {
      if (d->core->jobs() > 0 || d->core->Load().free_blocks < kBlocks) return false;
    }
    return true;
  };
  for (int turn = 0; turn < 1000 && !all_back(); ++turn) {
    for (const auto& p : prefill_) {
      p->KvTurn(absl::Now());
      p->core->RunOnce(absl::Now());
    }
    for (const auto& d : decode_) {
      d->KvTurn(absl::Now());
      d->core->RunOnce(absl::Now());
    }
  }
  EXPECT_TRUE(all_back());
}

}  // namespace
}  // namespace baton
