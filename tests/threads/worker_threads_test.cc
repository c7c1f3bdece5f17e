#include <algorithm>
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
#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"
#include "common/base/steady_time.h"
#include "common/base/wakeup.h"
#include "common/engine/fake_model.h"
#include "common/sampling/sampler.h"
#include "decode_worker/decode_worker.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "prefill_worker/prefill_worker.h"

namespace baton {
namespace {

constexpr int kVocab = 128;
constexpr int kContext = 160;
constexpr int kLongRopeFrom = 70;  // Sequences longer than this use another rotary table.
constexpr int kBlockTokens = 8;
// A pool of so few blocks that some requests wait for free blocks and some decode sequences are
// preempted.
constexpr int kBlocks = 96;
constexpr int kCallers = 6;
constexpr int kRequests = 200;  // Number of requests that each caller sends.
constexpr uint32_t kSeed = 20261121;

// A worker without gRPC: a core and a KV plane, each with its own event loop.
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
    core_loop = std::make_unique<Loop>(
        Loop::Options{.name = "core", .wakeup = &wakeup, .pulse = &core_pulse},
        [this](absl::Time now) { return core->RunOnce(now); });
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
  // After Stop(), the core and KV threads no longer run, so the calling thread may run the core and
  // the KV plane itself.
  void Stop() {
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

// Collects the updates about one attempt at a request. The caller can wait for each of them.
class Record {
 public:
  void Say(const PrefillUpdate& update) {
    MutexLock lock(&mutex_);
    if (auto* begun = std::get_if<PrefillBegun>(&update)) ticket_ = begun->ticket;
    if (auto* more = std::get_if<PrefillPromptTokens>(&update)) AddScores(more->tokens);
    if (auto* first = std::get_if<PrefillFirstToken>(&update)) {
      first_ = first->token.id;
      last_token_ = first->finish.has_value();
    }
    if (auto* ended = std::get_if<PrefillEnded>(&update)) prefill_ended_ = ended->status;
    changed_.SignalAll();
  }
  void Say(const DecodeUpdate& update) {
    MutexLock lock(&mutex_);
    if (auto* more = std::get_if<DecodePromptTokens>(&update)) AddScores(more->tokens);
    if (auto* tokens = std::get_if<DecodeTokens>(&update)) {
      for (const SampledToken& token : tokens->tokens) tokens_.push_back(token.id);
    }
    if (std::holds_alternative<DecodeFinished>(update)) finished_ = true;
    if (std::holds_alternative<DecodeOutgrown>(update)) outgrown_ = true;
    if (auto* ended = std::get_if<DecodeEnded>(&update)) decode_ended_ = ended->status;
    changed_.SignalAll();
  }
  // Returns nothing if prefill ended without a ticket.
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
  // Forgets the result of a decode worker, before the same ticket is given to another decode
  // worker. Call only after decode has ended.
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
  bool outgrown() {
    MutexLock lock(&mutex_);
    return outgrown_;
  }
  std::vector<TokenId> tokens() {
    MutexLock lock(&mutex_);
    return tokens_;
  }
  std::vector<SampledToken> scores() {
    MutexLock lock(&mutex_);
    return scores_;
  }

 private:
  void AddScores(const std::vector<SampledToken>& more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    scores_.insert(scores_.end(), more.begin(), more.end());
  }

  Mutex mutex_;
  CondVar changed_;
  std::optional<KvTicket> ticket_ ABSL_GUARDED_BY(mutex_);
  std::optional<TokenId> first_ ABSL_GUARDED_BY(mutex_);
  bool last_token_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<TokenId> tokens_ ABSL_GUARDED_BY(mutex_);
  std::vector<SampledToken> scores_ ABSL_GUARDED_BY(mutex_);  // Logprobs of the prompt.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool outgrown_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> prefill_ended_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> decode_ended_ ABSL_GUARDED_BY(mutex_);
};

// A request, and the answer that a single worker would give.
struct Asked {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  std::vector<TokenId> answer;
  std::vector<float> scores;  // Logprobs of the prompt, from its second token on.
};

class WorkerThreadsTest : public ::testing::Test {
 protected:
  WorkerThreadsTest()
      : model_(Model::WithoutWeights(FakeLongRopeConfig(kLongRopeFrom, kVocab, kContext))),
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
      d->core =
          DecodeWorker::Create({.max_batch = 4,
                                .chunk_tokens = 32,
                                .reuse_last_freed = true,
                                .wake = [d] { d->wakeup.Wake(); },
                                .pulse = &d->core_pulse},
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
                                       .numerics_id = "fake-v2",
                                       .layout = layout_,
                                       .blocks = kBlocks,
                                       .proves_links = proves})
        .value();
  }

  Asked Sample(std::mt19937& random) const {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    Asked asked;
    asked.prompt.resize(static_cast<size_t>(pick(1, 100)));
    for (TokenId& token : asked.prompt) token = pick(0, kVocab - 1);
    SamplingOptions& sampling = asked.sampling;
    sampling.max_tokens = pick(1, 40);
    if (pick(0, 1) == 0) {
      sampling.temperature = 0.8f;
      sampling.seed = random();
      sampling.answer_index = static_cast<uint32_t>(pick(0, 3));
    }
    if (pick(0, 2) == 0) {  // Sets options that depend on all tokens so far.
      sampling.repetition_penalty = 1.3f;
      sampling.presence_penalty = 0.4f;
      sampling.frequency_penalty = 0.2f;
      for (int i = 0; i < 20; ++i) {
        sampling.bad_words.push_back({pick(0, kVocab - 1), pick(0, kVocab - 1)});
      }
    }
    if (pick(0, 3) == 0) sampling.prompt_logprobs = pick(0, 2);

    const RopeConfig& rope = model_->config().rope;
    const int prompt = static_cast<int>(asked.prompt.size());
    std::vector<TokenId> tokens = asked.prompt;
    TokenHistory history(asked.prompt, prompt);
    std::vector<float> logits(kVocab);
    Sampler sampler;
    int reach = 0;
    std::optional<FakeOracle> oracle;
    while (static_cast<int>(asked.answer.size()) < sampling.max_tokens) {
      const int generated = static_cast<int>(asked.answer.size());
      if (prompt + generated > reach) {
        reach = RopeReach(rope, prompt, prompt + generated);
        oracle.emplace(layout_, RopeInverseFrequency(rope, reach).front());
        for (size_t i = 0; i < tokens.size(); ++i) {
          if (i > 0 && generated == 0) {
            oracle->Logits(absl::MakeSpan(logits));
            asked.scores.push_back(*sampler.Score(logits, tokens[i], 0, 0)->logprob);
          }
          oracle->Append(tokens[i]);
        }
      } else {
        oracle->Append(tokens.back());
      }
      oracle->Logits(absl::MakeSpan(logits));
      const TokenId id =
          sampler.Sample(absl::MakeSpan(logits), sampling, prompt + generated, generated, &history)
              ->id;
      asked.answer.push_back(id);
      tokens.push_back(id);
      history.Append(id);
    }
    return asked;
  }

  static void ExpectScores(const Asked& asked, const std::vector<SampledToken>& scores,
                           bool whole) {
    ASSERT_LE(scores.size(), asked.prompt.size());
    if (whole) {
      EXPECT_EQ(scores.size(), asked.prompt.size());
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(scores[i].id, asked.prompt[i]);
      EXPECT_EQ(scores[i].position, static_cast<int>(i));
      EXPECT_EQ(scores[i].logprob.has_value(), i > 0);
      if (i > 0) {
        EXPECT_EQ(*scores[i].logprob, asked.scores[i - 1]);
      }
    }
  }

  // Sends one request as a router would. Makes up to 20 attempts until the request is answered.
  void Ask(std::mt19937& random) {
    const Asked asked = Sample(random);
    std::vector<TokenId> shown;
    for (int tries = 0; tries < 20 && !HasFatalFailure(); ++tries) {
      const bool local = std::uniform_int_distribution<int>(0, 3)(random) == 0;
      if (!Try(random, asked, local, &shown)) return;
    }
  }

  // Makes one attempt, and may end it early at a moment that the random numbers choose. Appends new
  // tokens to `shown`. Returns true if the request needs another attempt, and false if it was
  // answered or cancelled.
  bool Try(std::mt19937& random, const Asked& asked, bool local, std::vector<TokenId>* shown) {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    // Moment of a cancellation. 0: after submit; 1: after the ticket; 2: after the first token; 3:
    // after some tokens. Any other value: the request is not cancelled.
    const int give_up = pick(0, 11);
    std::vector<TokenId> tokens = asked.prompt;
    tokens.insert(tokens.end(), shown->begin(), shown->end());
    const std::vector<TokenId> expected(asked.answer.begin() + shown->size(), asked.answer.end());
    SamplingOptions sampling = asked.sampling;
    if (!shown->empty()) sampling.prompt_logprobs.reset();
    const int prompt_tokens = static_cast<int>(asked.prompt.size());
    auto record = std::make_shared<Record>();
    PrefillWorker& p = *prefill_[pick(0, 1)]->core;
    // Calls Load() on a thread that is not the loop thread of the core, as a worker's attach thread
    // does.
    EXPECT_LE(p.Load().free_blocks, kBlocks);
    std::optional<PrefillWorker::JobId> prefill;
    std::optional<KvTicket> ticket;
    const auto end_prefill = [&] {
      if (!prefill) return;
      p.Cancel(*prefill);
      record->AwaitPrefillEnded();
    };
    if (!local) {
      const auto job = p.Submit({.request_id = "r",
                                 .tokens = tokens,
                                 .original_prompt_tokens = prompt_tokens,
                                 .sampling = sampling,
                                 .arrival = SteadyNow()},
                                [record](const PrefillUpdate& u) { record->Say(u); });
      EXPECT_TRUE(job.ok()) << job.status();
      if (!job.ok()) return false;
      prefill = *job;
      if (give_up == 0) p.Cancel(*prefill);
      ticket = record->AwaitTicket();
      if (!ticket || give_up == 1) {
        end_prefill();
        return false;
      }
    }
    for (uint32_t attempt = 0;; ++attempt) {
      DecodeWorker& d = *decode_[(attempt + tokens.size()) % 2]->core;
      EXPECT_LE(d.Load().free_blocks, kBlocks);
      const auto decode = d.Submit({.request_id = "r",
                                    .attempt = attempt,
                                    .ticket = ticket,
                                    .tokens = tokens,
                                    .original_prompt_tokens = prompt_tokens,
                                    .sampling = sampling},
                                   [record](const DecodeUpdate& u) { record->Say(u); });
      EXPECT_TRUE(decode.ok()) << decode.status();
      if (!decode.ok()) return false;
      if (!local) {
        const std::optional<TokenId> first = record->AwaitFirst();
        EXPECT_EQ(first.value_or(expected[0]), expected[0]);
        if (sampling.prompt_logprobs) {
          ExpectScores(asked, record->scores(), first.has_value());
        }
      }
      // True if prefill gave the whole answer, so that there is nothing to decode.
      const bool last = record->last_token();
      if (last || give_up == 2) d.Cancel(*decode);
      if (give_up == 3) {
        record->AwaitTokens(static_cast<size_t>(pick(1, 20)));
        d.Cancel(*decode);
      }
      if (give_up == 4) {
        d.SetPaused(*decode, true);
        d.SetPaused(*decode, false);
      }
      const absl::Status ended = record->AwaitDecodeEnded();
      const std::vector<TokenId> got = record->tokens();
      const auto end = expected.begin() + std::min(got.size(), expected.size());
      EXPECT_EQ(got, std::vector<TokenId>(expected.begin(), end));
      if (local && sampling.prompt_logprobs) ExpectScores(asked, record->scores(), !got.empty());
      // If decode was preempted before it pulled the KV, the same ticket goes to another worker.
      // After a pull this would not work, because the ticket's KV has been released.
      if (ticket && absl::IsResourceExhausted(ended) && got.empty() && attempt < 20) {
        record->ForgetDecode();
        continue;
      }
      end_prefill();
      if (ended.ok()) {
        EXPECT_TRUE(record->finished());
        EXPECT_EQ(got, expected);
        ++answered_;
        scored_ += asked.sampling.prompt_logprobs.has_value();
        return false;
      }
      if (last || give_up < 4) return false;
      shown->insert(shown->end(), got.begin(), got.end());
      if (record->outgrown()) {
        EXPECT_TRUE(absl::IsFailedPrecondition(ended)) << ended;
        EXPECT_EQ(asked.prompt.size() + shown->size(), kLongRopeFrom + 1u);
        ++outgrown_;
      } else {
        EXPECT_TRUE(absl::IsResourceExhausted(ended)) << ended;
      }
      return shown->size() < asked.answer.size();
    }
  }

  const std::unique_ptr<const Model> model_;
  const KvLayout layout_;
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<Worker<PrefillWorker>>> prefill_;
  std::vector<std::unique_ptr<Worker<DecodeWorker>>> decode_;
  std::atomic<int> answered_ = 0, scored_ = 0, outgrown_ = 0;
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
  std::printf(
      "%d of %d requests answered to their end, %d with logprobs of the prompt; %d outgrew\n",
      answered_.load(), kCallers * kRequests, scored_.load(), outgrown_.load());
  EXPECT_GT(answered_, kCallers * kRequests / 4);
  EXPECT_GT(scored_, kCallers * kRequests / 20);
  EXPECT_GT(outgrown_, kCallers * kRequests / 20);
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
  // When the core and KV threads of a worker stopped, messages about the last releases may have
  // been on the way between them. So this thread runs their loops until every block has been
  // released.
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
      p->KvTurn(SteadyNow());
      p->core->RunOnce(SteadyNow());
    }
    for (const auto& d : decode_) {
      d->KvTurn(SteadyNow());
      d->core->RunOnce(SteadyNow());
    }
  }
  EXPECT_TRUE(all_back());
}

}  // namespace
}  // namespace baton
