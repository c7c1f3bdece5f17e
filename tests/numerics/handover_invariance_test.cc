#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/engine/one_process.h"
#include "decode_worker/decode_worker.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "prefill_worker/prefill_worker.h"
#include "tests/numerics/logit_witness.h"
#include "tests/numerics/numerics_case.h"

namespace baton {
namespace {

using Isa = CpuBackendOptions::Isa;

constexpr int kMaxTokens = 24;  // max tokens of an answer
constexpr int kAtOnce = 5;      // max requests at the same time

// A request, and its answer from one engine, alone on one thread.
struct Truth {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  std::vector<TokenId> answer;
  // Hashes of rows of logits. `scored` has the row of every position of the prompt except the last.
  // `sampled` has, for each token of the answer, the row from which the token was sampled.
  std::vector<uint64_t> scored, sampled;
};

// The parts of a worker process, run in this thread. Each call of Turn() calls RunOnce of the KV
// plane and of the core.
template <typename Core>
struct Worker {
  bool Turn(absl::Time now) {
    const bool moved = plane->RunOnce(now);
    return core->RunOnce(now) || moved;
  }
  std::string name;
  WorkerEpoch epoch = 0;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<const Model> model;
  std::unique_ptr<KvPlane> plane;
  std::unique_ptr<KvPublisher> publisher;
  std::unique_ptr<KvPuller> puller;
  std::unique_ptr<Core> core;
};

// A request under way, with everything that a router would remember about it.
struct Asked {
  const Truth* truth = nullptr;
  SamplingOptions sampling;
  std::vector<TokenId> tokens;  // tokens of the answer so far
  // Number of tokens after which the request leaves its decode worker. 0: the request stays.
  size_t move_at = 0;
  int prefill = 0, decode = 0;  // indices of the request's workers
  std::optional<PrefillWorker::JobId> prefill_job;
  std::optional<DecodeWorker::JobId> decode_job;
  std::optional<KvTicket> ticket;  // ticket that no decode worker has yet
  bool scored = false, first_is_last = false, moving = false, answered = false;
};

class HandoverInvarianceTest : public testing::TestWithParam<NumericsCase> {
 protected:
  void SetUp() override {
    isas_ = GetParam().Isas();
    if (isas_.empty()) {
      GTEST_SKIP() << CreateCpuBackend({1, Isa::kAuto, GetParam().numerics}).status().message();
    }
    SetLogLevel(Severity::kError);
  }

  // Returns the max length of a prompt with its answer.
  int MaxTokens() const { return static_cast<int>(truths_.back().prompt.size()) + kMaxTokens + 1; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::unique_ptr<Backend> AnyBackend(LogitWitness::Hear hear) {
    const Isa isa = isas_[Pick(0, static_cast<int>(isas_.size()) - 1)];
    return std::make_unique<LogitWitness>(
        CreateCpuBackend({Pick(1, 4), isa, GetParam().numerics}).value(), std::move(hear));
  }

  // Asks one engine for all answers and logits that the test needs.
  void MakeTruths() {
    std::vector<uint64_t> heard;
    LogitWitness backend(CreateCpuBackend({1, isas_.front(), GetParam().numerics}).value(),
                         [&](uint64_t hash) { heard.push_back(hash); });
    const auto model = Model::Load(GetParam().Folder(), &backend).value();
    config_ = model->config();
    std::vector<int> lengths = {1, 2, 7, 17, 40, 70};
    if (GetParam().IsLong()) lengths = {3, 40, 1350};
    const KvLayout layout = model->LayoutFor(16, model->weight_type());
    const int rows = lengths.back() + kMaxTokens, blocks = layout.BlocksFor(rows);
    std::vector<std::byte> memory(blocks * layout.BlockBytes(), std::byte{0xff});
    BlockPool pool(blocks);
    const auto engine =
        Engine::Create(model.get(), &backend, {.data = memory.data(), .layout = layout}, rows)
            .value();
    for (const int longest : lengths) {
      Truth truth;
      const int max = std::min(longest, config_.context - kMaxTokens - 1);
      const size_t length = Pick(std::max(1, max - 8), max);
      // Every other prompt begins like an earlier one, so that workers find a part of it cached.
      if (truths_.size() % 2 == 1) {
        const std::vector<TokenId>& earlier = truths_.back().prompt;
        truth.prompt.assign(earlier.begin(),
                            earlier.begin() + Pick(0, static_cast<int>(earlier.size())));
        if (truth.prompt.size() > length) truth.prompt.resize(length);
      }
      while (truth.prompt.size() < length) truth.prompt.push_back(Pick(0, config_.vocab - 1));
      truth.sampling.max_tokens = Pick(kMaxTokens / 2, kMaxTokens);
      truth.sampling.temperature = Pick(0, 1) == 0 ? 0.0f : 0.9f;
      truth.sampling.seed = random_();
      SamplingOptions scored = truth.sampling;
      scored.prompt_logprobs = 0;
      heard.clear();
      const auto answer =
          GenerateInOneProcess(engine.get(), &pool, config_, 16, truth.prompt, scored).value();
      for (const SampledToken& token : answer.tokens) truth.answer.push_back(token.id);
      // `heard` has one hash per row of logits. The first row is the one from which token 1 of the
      // answer was sampled. The rows for the logprobs of the prompt follow, and last comes one row
      // for each further token of the answer.
      const auto scores = heard.begin() + 1, samples = scores + truth.prompt.size() - 1;
      truth.scored.assign(scores, samples);
      truth.sampled.assign(heard.begin(), scores);
      truth.sampled.insert(truth.sampled.end(), samples, heard.end());
      ASSERT_EQ(truth.sampled.size(), truth.answer.size());
      truths_.push_back(std::move(truth));
    }
    for (const Truth& truth : truths_) {
      known_.insert(truth.scored.begin(), truth.scored.end());
      known_.insert(truth.sampled.begin(), truth.sampled.end());
    }
  }

  template <typename Core>
  std::unique_ptr<Worker<Core>> MakeWorker(const std::string& name, WorkerEpoch epoch,
                                           int block_tokens) {
    auto worker = std::make_unique<Worker<Core>>();
    worker->name = name;
    worker->epoch = epoch;
    worker->transport = fabric_->CreateTransport();
    worker->backend = AnyBackend([this, name](uint64_t hash) {
      EXPECT_TRUE(known_.count(hash)) << "logits of " << name << " that no engine alone has";
      heard_.insert(hash);
      ++rows_[std::is_same_v<Core, DecodeWorker>];
    });
    worker->model = Model::Load(GetParam().Folder(), worker->backend.get()).value();
    const KvLayout layout = worker->model->LayoutFor(block_tokens, worker->model->weight_type());
    KvPlane::Options plane = {.epoch = epoch,
                              .numerics_id = worker->backend->numerics_id(),
                              .layout = layout,
                              .blocks = kAtOnce * layout.BlocksFor(MaxTokens()),
                              .proves_links = std::is_same_v<Core, DecodeWorker>};
    worker->plane = KvPlane::Create(worker->transport.get(), plane).value();
    // The pool begins as NaN, so that a read of KV that was not written or pulled is noticed.
    std::fill_n(worker->plane->pool(), plane.blocks * layout.BlockBytes(), std::byte{0xff});
    return worker;
  }

  // Makes two workers of each role, each with its own random settings.
  void MakeWorkers() {
    constexpr int kBlocks[] = {1, 8, 13, 16};
    const int block_tokens = kBlocks[GetParam().IsLong() ? Pick(1, 3) : Pick(0, 3)];
    const auto inline_kv = [](std::function<void()> work) { work(); };
    for (WorkerEpoch i = 0; i < 2; ++i) {
      prefill_.push_back(
          MakeWorker<PrefillWorker>(absl::StrCat("prefill ", i), 1 + i, block_tokens));
      auto& p = *prefill_.back();
      p.publisher = KvPublisher::Create(p.plane.get(), {.owner = p.name});
      p.core = PrefillWorker::Create(
                   {.chunk_tokens = block_tokens * (GetParam().IsLong() ? Pick(9, 70) : Pick(1, 9)),
                    .context = MaxTokens(),
                    .slice_bytes = Pick(0, 1) == 0 ? 1u : 4096u,
                    .cache = {.check_content = true},
                    .reuse_last_freed = true},
                   p.model.get(), p.backend.get(), p.plane.get(), p.publisher.get(), inline_kv)
                   .value();
      decode_.push_back(MakeWorker<DecodeWorker>(absl::StrCat("decode ", i), 11 + i, block_tokens));
      auto& d = *decode_.back();
      d.puller = KvPuller::Create(d.plane.get(), {});
      d.core = DecodeWorker::Create({.max_batch = Pick(2, kAtOnce),
                                     .context = MaxTokens(),
                                     .cache = {.check_content = true},
                                     .reuse_last_freed = true},
                                    d.model.get(), d.backend.get(), d.plane.get(), d.puller.get(),
                                    inline_kv)
                   .value();
    }
    std::vector<KvPeer> owners, readers;
    for (const auto& p : prefill_) owners.push_back({p->epoch, p->name, p->plane->address()});
    for (const auto& d : decode_) readers.push_back({d->epoch, d->name, d->plane->address()});
    for (const auto& p : prefill_) p->plane->SetPeers(readers);
    for (const auto& d : decode_) d->plane->SetPeers(owners);
  }
  void DropWorkers() {
    for (auto& p : prefill_) p->core.reset();
    for (auto& d : decode_) d->core.reset();
    for (auto& p : prefill_) p->publisher.reset();
    for (auto& d : decode_) d->puller.reset();
    prefill_.clear();
    decode_.clear();
    fabric_ = std::make_unique<InProcessFabric>(InProcessFabric::Options{.single_threaded = true});
  }

  void Begin(Asked* asked) {
    asked->prefill = Pick(0, 1);
    std::vector<TokenId> tokens = asked->truth->prompt;
    tokens.insert(tokens.end(), asked->tokens.begin(), asked->tokens.end());
    asked->prefill_job =
        prefill_[asked->prefill]
            ->core
            ->Submit({.request_id = "r",
                      .tokens = std::move(tokens),
                      .original_prompt_tokens = static_cast<int>(asked->truth->prompt.size()),
                      .sampling = asked->sampling,
                      .arrival = now_},
                     [this, asked](const PrefillUpdate& update) { Heard(asked, update); })
            .value();
    // Only the first attempt asks for the logprobs of the prompt.
    asked->sampling.prompt_logprobs.reset();
  }
  void Heard(Asked* asked, const PrefillUpdate& update) {
    if (auto* begun = std::get_if<PrefillBegun>(&update)) {
      asked->ticket = begun->ticket;
      cached_[0] += begun->cached_tokens;
    }
    if (auto* first = std::get_if<PrefillFirstToken>(&update)) {
      Heard(asked, first->token);
      asked->first_is_last = first->finish.has_value();
    }
    if (std::holds_alternative<PrefillEnded>(update)) asked->prefill_job.reset();
  }
  void Heard(Asked* asked, const SampledToken& token) {
    const size_t index = token.position - asked->truth->prompt.size();
    ASSERT_LT(index, asked->truth->answer.size());
    EXPECT_EQ(token.id, asked->truth->answer[index]);
    ASSERT_LE(index, asked->tokens.size());
    if (index == asked->tokens.size()) asked->tokens.push_back(token.id);
  }
  void Heard(Asked* asked, const DecodeUpdate& update) {
    if (auto* reserved = std::get_if<DecodeReserved>(&update))
      cached_[1] += reserved->cached_tokens;
    if (auto* more = std::get_if<DecodeTokens>(&update)) {
      for (const SampledToken& token : more->tokens) Heard(asked, token);
    }
    if (std::holds_alternative<DecodeFinished>(update)) asked->answered = true;
    if (std::holds_alternative<DecodeOutgrown>(update)) {
      asked->moving = true;
      ++outgrown_;
    }
    if (auto* ended = std::get_if<DecodeEnded>(&update)) {
      asked->decode_job.reset();
      EXPECT_TRUE(asked->answered || asked->moving || asked->first_is_last) << ended->status;
    }
  }
  // Does what a router would do for this request now.
  void Route(Asked* asked) {
    if (asked->ticket) {
      asked->decode = Pick(0, 1);
      std::vector<TokenId> tokens = asked->truth->prompt;
      tokens.insert(tokens.end(), asked->tokens.begin(), asked->tokens.end());
      tokens.resize(asked->ticket->tokens);
      asked->decode_job =
          decode_[asked->decode]
              ->core
              ->Submit({.request_id = "r",
                        .ticket = *std::exchange(asked->ticket, std::nullopt),
                        .tokens = std::move(tokens),
                        .original_prompt_tokens = static_cast<int>(asked->truth->prompt.size()),
                        .sampling = asked->sampling},
                       [this, asked](const DecodeUpdate& update) { Heard(asked, update); })
              .value();
    }
    if (asked->first_is_last && !asked->answered) {
      asked->answered = true;
      if (asked->decode_job) decode_[asked->decode]->core->Cancel(*asked->decode_job);
      if (asked->prefill_job) prefill_[asked->prefill]->core->Cancel(*asked->prefill_job);
    }
    if (asked->answered) return;
    if (asked->move_at > 0 && asked->tokens.size() >= asked->move_at && asked->decode_job) {
      asked->move_at = 0;
      asked->moving = true;
      ++moves_;
      decode_[asked->decode]->core->Cancel(*asked->decode_job);
    }
    if (asked->moving && !asked->decode_job) {
      if (asked->prefill_job) {
        prefill_[asked->prefill]->core->Cancel(*asked->prefill_job);
      } else {
        asked->moving = false;
        Begin(asked);
      }
    }
  }

  // Runs some requests at the same time, each to its end.
  void RunTogether() {
    heard_.clear();
    std::vector<Asked> all(Pick(1, GetParam().IsLong() ? 3 : kAtOnce));
    for (Asked& asked : all) {
      asked.truth = &truths_[Pick(0, static_cast<int>(truths_.size()) - 1)];
      if (GetParam().IsLong() && &asked == &all.front()) asked.truth = &truths_.back();
      asked.sampling = asked.truth->sampling;
      asked.scored = Pick(0, 3) == 0;
      if (asked.scored) asked.sampling.prompt_logprobs = 0;
      if (Pick(0, 1) == 0) asked.move_at = Pick(1, kMaxTokens / 2 - 2);
      Begin(&asked);
    }
    for (int turn = 0;; ++turn) {
      ASSERT_LT(turn, 20000);
      bool busy = false;
      for (const auto& p : prefill_) busy |= p->Turn(now_);
      for (const auto& d : decode_) busy |= d->Turn(now_);
      for (Asked& asked : all) Route(&asked);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
      bool over = !busy;
      for (const Asked& asked : all) {
        over &= asked.answered && !asked.prefill_job && !asked.decode_job;
      }
      if (over) break;
      now_ += absl::Milliseconds(1);
    }
    for (const Asked& asked : all) {
      EXPECT_EQ(asked.tokens, asked.truth->answer);
      for (const uint64_t hash : asked.truth->sampled) EXPECT_TRUE(heard_.count(hash));
      if (!asked.scored) continue;
      for (const uint64_t hash : asked.truth->scored) EXPECT_TRUE(heard_.count(hash));
    }
    for (const auto& p : prefill_)
      EXPECT_EQ(p->core->Load().free_blocks, p->plane->options().blocks);
    for (const auto& d : decode_)
      EXPECT_EQ(d->core->Load().free_blocks, d->plane->options().blocks);
  }

  std::vector<Isa> isas_;
  std::mt19937 random_;
  ModelConfig config_;
  std::vector<Truth> truths_;  // sorted, the longest last
  std::set<uint64_t> known_;   // hashes of the logits of all truths
  std::set<uint64_t> heard_;   // hashes of the logits in this case
  std::unique_ptr<InProcessFabric> fabric_;
  std::vector<std::unique_ptr<Worker<PrefillWorker>>> prefill_;
  std::vector<std::unique_ptr<Worker<DecodeWorker>>> decode_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  int moves_ = 0, outgrown_ = 0;
  int rows_[2] = {};    // rows of logits that prefill and decode workers computed
  int cached_[2] = {};  // tokens that prefill and decode workers found in their prefix caches
};

TEST_P(HandoverInvarianceTest, LogitsBehindHandoverAndMigrationHaveTheBitsOfOneEngine) {
  const uint32_t seed = FromEnvironment("BATON_SEED", 20261121);
  uint32_t cases = FromEnvironment("BATON_CASES", 10);
  if (GetParam().IsLong()) cases = (cases + 4) / 5;
  random_.seed(seed);
  MakeTruths();
  for (uint32_t i = 0; i < cases; ++i) {
    random_.seed(seed + i + 1);
    if (i % 5 == 0) {
      DropWorkers();
      MakeWorkers();
    }
    RunTogether();
    ASSERT_FALSE(HasFatalFailure() || HasNonfatalFailure()) << "seed " << seed << ", case " << i;
  }
  EXPECT_GT(rows_[0], 0);
  EXPECT_GT(rows_[1], 0);
  EXPECT_GT(moves_, 0);
  if (cases > 1) {
    EXPECT_GT(cached_[0], 0);
    EXPECT_GT(cached_[1], 0);
  }
  RecordProperty("prefill_cached_tokens", cached_[0]);
  RecordProperty("decode_cached_tokens", cached_[1]);
  RecordProperty("prefill_rows", rows_[0]);
  RecordProperty("decode_rows", rows_[1]);
  RecordProperty("moves", moves_);
  RecordProperty("outgrown", outgrown_);
  DropWorkers();
}

INSTANTIATE_TEST_SUITE_P(Cpu, HandoverInvarianceTest, testing::ValuesIn(AllNumericsCases()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace baton
