#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/engine/fake_model.h"
#include "common/rpc/limits.h"
#include "common/sampling/sampler.h"
#include "common/worker/cache_proto.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"
#include "router/block_naming.h"
#include "router/core/worker_caches.h"
#include "tests/sim/sim_wire.h"

namespace baton {
namespace {

constexpr absl::Duration kReportEvery = absl::Milliseconds(250);
// Max step of the simulated clock. The clock also advances when no event is due, because the KV
// planes (the connections between workers) have timers of their own.
constexpr absl::Duration kTick = absl::Milliseconds(2);
// Min step of the clock. Events that are due within one such step happen together.
constexpr absl::Duration kGrain = absl::Microseconds(250);

}  // namespace

struct SimCluster::Worker {
  v1::WorkerRole role;
  int model = 0;
  bool draining = false, gone = false;
  AttachKey attach = 0;
  v1::Registration registration;
  std::unique_ptr<Transport> wire;
  std::unique_ptr<FaultyTransport> transport;
  std::unique_ptr<KvPlane> plane;
  std::unique_ptr<KvPublisher> publisher;
  std::unique_ptr<KvPuller> puller;
  std::unique_ptr<Backend> backend;
  std::deque<std::function<void()>> kv_work;
  std::unique_ptr<PrefillWorker> prefill;
  std::unique_ptr<DecodeWorker> decode;
  absl::Duration spent;  // time that the current step takes
  absl::Duration busy;   // time of all steps so far
  absl::Time busy_until = absl::InfinitePast();
  absl::Time next_report = absl::InfinitePast();
  size_t links = 0;
  absl::Time last_delivery = absl::InfinitePast();
  NameLog::Cursor cache_told;  // position of the router in the log of the prefix cache
  bool cache_on_way = false;   // the router has not taken the last message on the prefix cache
  absl::Time next_cache = absl::InfinitePast();

  WorkerCore* core() { return prefill ? static_cast<WorkerCore*>(prefill.get()) : decode.get(); }
  WorkerLoad load() const { return prefill ? prefill->Load() : decode->Load(); }
  int jobs() const { return prefill ? prefill->jobs() : decode->jobs(); }
  bool RunKv(absl::Time now) {
    bool worked = !kv_work.empty();
    while (!kv_work.empty()) {
      const auto work = std::move(kv_work.front());
      kv_work.pop_front();
      work();
    }
    return plane->RunOnce(now) || worked;
  }
  bool RunCore(absl::Time now) {
    if (now < busy_until) return false;
    spent = absl::ZeroDuration();
    const bool worked = prefill ? prefill->RunOnce(now) : decode->RunOnce(now);
    busy_until = now + spent;
    busy += spent;
    return worked;
  }
};

struct SimCluster::Leg {
  Worker* worker = nullptr;
  std::optional<uint64_t> job;
  bool paused = false;
  std::deque<CoreEvent> held;  // events that arrived while the leg was paused
  absl::Time last_out = absl::InfinitePast(), last_in = absl::InfinitePast();
};

SimCluster::SimCluster(Options options)
    : options_(std::move(options)), random_(options_.seed), fabric_({.single_threaded = true}) {
  for (int model = 0; model < 2; ++model) {
    models_.push_back(Model::WithoutWeights(ConfigOf(options_, model)));
  }
  layout_ = models_[0]->LayoutFor(options_.block_tokens, DType::kF16);
  RouterCoreOptions router;
  router.model_name = "fake";
  router.context_tokens = options_.context;
  router.vocab = options_.vocab;
  router.max_queued = 1 << 20;
  router.mode = options_.mode;
  router.pair_wait = router.room_wait = absl::Hours(1);
  router.prefix_index_bytes = options_.prefix_index_bytes;
  router.policy_seed = options_.seed;
  router.routed_for = absl::Milliseconds(100);
  if (options_.adjust_router) options_.adjust_router(&router);
  router_ = std::make_unique<LoggedCore>(router, options_.log);
  for (int i = 0; i < options_.prefill_workers; ++i) AddWorker(v1::WORKER_ROLE_PREFILL, 0);
  for (int i = 0; i < options_.decode_workers; ++i) AddWorker(v1::WORKER_ROLE_DECODE, 0);
  RunUntil(now_ + absl::Seconds(2));
}

SimCluster::~SimCluster() {
  for (auto& worker : workers_) {  // cores are destroyed before the planes that they use
    worker->prefill.reset();
    worker->decode.reset();
    worker->kv_work.clear();
    worker->publisher.reset();
    worker->puller.reset();
    worker->plane.reset();
    worker->transport.reset();
  }
}

// Model 1 differs from model 0 in the scaling of its rotary table. This is enough, because the
// tokens of the fake backend depend on the rotary table.
ModelConfig SimCluster::ConfigOf(const Options& options, int model) {
  ModelConfig config =
      options.long_rope_from > 0
          ? FakeLongRopeConfig(options.long_rope_from, options.vocab, options.context)
          : FakeModelConfig(options.vocab, options.context);
  if (model == 1) {
    config.rope.type = RopeConfig::Type::kLinear;
    config.rope.factor = 2;
  }
  return config;
}

int SimCluster::AddWorker(v1::WorkerRole role, int model) {
  const bool prefills = role == v1::WORKER_ROLE_PREFILL;
  const int index = static_cast<int>(workers_.size());
  workers_.push_back(std::make_unique<Worker>());
  Worker* worker = workers_.back().get();
  worker->role = role;
  worker->model = model;
  worker->attach = workers_.size();
  worker->wire = fabric_.CreateTransport();
  worker->transport =
      std::make_unique<FaultyTransport>(worker->wire.get(), random_(), [this] { return now_; });
  const Options::StepTimes& times = prefills ? options_.prefill_times : options_.decode_times;
  worker->backend = CreateFakeBackend(
      {.per_step = times.per_step, .per_row = times.per_row, .spend = [worker](absl::Duration d) {
         worker->spent += d;
       }});
  KvPlane::Options plane;
  plane.epoch = workers_.size();
  plane.numerics_id = worker->backend->numerics_id();
  plane.layout = layout_;
  plane.blocks = prefills ? options_.prefill_blocks : options_.decode_blocks;
  plane.proves_links = !prefills;
  worker->plane = KvPlane::Create(worker->transport.get(), plane).value();
  const std::string address = absl::StrCat(prefills ? "prefill-" : "decode-", index, ":1");
  const auto on_kv_thread = [worker](std::function<void()> work) {
    worker->kv_work.push_back(std::move(work));
  };
  const PrefixCacheSettings cache = {.enabled = options_.prefix_cache,
                                     .model_fingerprint = models_[model]->fingerprint(),
                                     .check_content = options_.prefix_cache};
  if (prefills) {
    PrefillWorker::Options prefill = options_.prefill;
    prefill.cache = cache;
    worker->publisher = KvPublisher::Create(worker->plane.get(), {.owner = address});
    worker->prefill =
        PrefillWorker::Create(prefill, models_[model].get(), worker->backend.get(),
                              worker->plane.get(), worker->publisher.get(), on_kv_thread)
            .value();
  } else {
    DecodeWorker::Options decode = options_.decode;
    decode.cache = cache;
    worker->puller = KvPuller::Create(worker->plane.get(), {});
    worker->decode = DecodeWorker::Create(decode, models_[model].get(), worker->backend.get(),
                                          worker->plane.get(), worker->puller.get(), on_kv_thread)
                         .value();
  }
  v1::Registration& registration = worker->registration;
  registration.set_role(role);
  registration.set_address(address);
  registration.set_epoch(plane.epoch);
  registration.set_protocol_version(static_cast<uint32_t>(kProtocolVersion));
  registration.set_model("fake");
  registration.set_model_fingerprint(models_[model]->fingerprint());
  registration.set_layout_fingerprint(layout_.Fingerprint());
  registration.set_numerics_id(plane.numerics_id);
  registration.set_kv_address(worker->plane->address());
  registration.set_total_blocks(static_cast<uint32_t>(plane.blocks));
  registration.set_block_tokens(static_cast<uint32_t>(layout_.block_tokens));
  registration.set_context_tokens(static_cast<uint32_t>(options_.context));
  registration.set_prefix_cache(options_.prefix_cache);
  registration.set_max_batch(
      static_cast<uint32_t>(prefills ? options_.prefill.max_queue : options_.decode.max_batch));
  router_->Handle(WorkerAttached{worker->attach, registration}, now_);
  return index;
}

void SimCluster::Drain(int index) {
  Worker& worker = *workers_.at(index);
  worker.draining = true;
  worker.prefill ? worker.prefill->Drain() : worker.decode->Drain();
  worker.next_report = absl::InfinitePast();
}

void SimCluster::NoteModel(const std::string& request_id, const Worker& worker) {
  const auto [found, added] = model_of_.try_emplace(request_id, worker.model);
  EXPECT_EQ(found->second, worker.model) << request_id << " was begun with another model";
}

std::vector<TokenId> SimCluster::Expected(const CheckedRequest& request, int model) const {
  const SamplingOptions& sampling = request.sampling;
  const RopeConfig& rope = models_[model]->config().rope;
  std::vector<TokenId> tokens = request.prompt;
  int reach = 0;  // number of tokens that the rotary table of `oracle` covers
  std::optional<FakeOracle> oracle;
  std::vector<float> logits(options_.vocab);
  Sampler sampler;
  std::vector<TokenId> answer;
  const int prompt = static_cast<int>(request.prompt.size());
  TokenHistory history(request.prompt, prompt);
  while (true) {
    if (static_cast<int>(tokens.size()) > reach) {
      reach = RopeReach(rope, prompt, static_cast<int>(tokens.size()));
      oracle.emplace(layout_, RopeInverseFrequency(rope, reach).front());
      for (const TokenId token : tokens) oracle->Append(token);
    } else {
      oracle->Append(tokens.back());
    }
    oracle->Logits(absl::MakeSpan(logits));
    const int generated = static_cast<int>(answer.size());
    const TokenId id =
        sampler.Sample(absl::MakeSpan(logits), sampling, prompt + generated, generated, &history)
            ->id;
    answer.push_back(id);
    tokens.push_back(id);
    history.Append(id);
    if (FinishAt(id, prompt + generated, prompt, sampling, options_.context)) return answer;
  }
}

std::vector<float> SimCluster::ExpectedScores(const CheckedRequest& request) const {
  const RopeConfig& rope = models_[0]->config().rope;
  const int prompt = static_cast<int>(request.prompt.size());
  FakeOracle oracle(layout_, RopeInverseFrequency(rope, RopeReach(rope, prompt, prompt)).front());
  std::vector<float> logits(options_.vocab), scores;
  Sampler sampler;
  for (size_t i = 0; i + 1 < request.prompt.size(); ++i) {
    oracle.Append(request.prompt[i]);
    oracle.Logits(absl::MakeSpan(logits));
    scores.push_back(*sampler.Score(logits, request.prompt[i + 1], 0, 0)->logprob);
  }
  return scores;
}

SimClient* SimCluster::Add(CheckedRequest request) {
  clients_.push_back(std::make_unique<SimClient>());
  SimClient* client = clients_.back().get();
  const RequestKey key = clients_.size();
  client->request = request;
  ++running_;
  running_clients_.push_back(key);
  deliveries_.emplace(request.arrival, [this, key, request = std::move(request)]() mutable {
    if (request.prefix_cache && options_.prefix_index_bytes > 0) {
      request.block_names = NamePromptBlocks(serving_, /*secret=*/"", models_[0]->config().rope,
                                             request.cache_salt, request.prompt);
    }
    router_->Handle(ClientArrived{key, std::move(request)}, now_);
  });
  return client;
}

// Delivers after a random delay. Deliveries with the same `last` arrive in the order of the calls.
void SimCluster::Later(absl::Time* last, std::function<void()> deliver) {
  const double share = std::uniform_real_distribution<double>(0, 1)(random_);
  *last = std::max(*last, now_ + options_.wire_delay * share);
  deliveries_.emplace(*last, std::move(deliver));
}

SimCluster::Worker* SimCluster::Find(const WorkerName& name) {
  for (auto& worker : workers_) {
    if (worker->registration.address() == name.address) return worker.get();
  }
  return nullptr;
}

void SimCluster::Deliver(Leg* leg, CoreEvent event) {
  if (leg->paused) {
    leg->held.push_back(std::move(event));
    return;
  }
  const auto* ended = std::get_if<LegEnded>(&event);
  const LegKey over = ended != nullptr ? ended->leg : 0;
  router_->Handle(std::move(event), now_);
  if (over != 0) legs_.erase(over);
}

void SimCluster::Unpause(Leg* leg) {
  leg->paused = false;
  std::deque<CoreEvent> held;
  held.swap(leg->held);
  for (CoreEvent& event : held) Deliver(leg, std::move(event));
}

void SimCluster::Said(LegKey key, CoreEvent event) {
  Leg* leg = legs_.at(key).get();
  Later(&leg->last_in, [this, leg, event = std::move(event)] { Deliver(leg, event); });
}

template <class Job>
void SimCluster::Forget(LegKey key, Job job) {
  Said(key, LegEnded{key, legs_.at(key)->worker->core()->Forget(
                              std::move(job.tokens), job.original_prompt_tokens, job.cache_salt)});
}

void SimCluster::Start(StartPrefill action) {
  const LegKey key = action.leg;
  Leg* leg = (legs_[key] = std::make_unique<Leg>()).get();
  leg->worker = Find(action.worker);
  NoteModel(action.request.request_id(), *leg->worker);
  Later(&leg->last_out, [this, key, leg, request = std::move(action.request)] {
    PrefillJob wanted = JobFrom(request, now_);
    if (wanted.cache == CacheUse::kForget) return Forget(key, std::move(wanted));
    auto job = leg->worker->prefill->Submit(std::move(wanted), [this, key](PrefillUpdate u) {
      if (auto* ended = std::get_if<PrefillEnded>(&u))
        return Said(key, LegEnded{key, ended->status});
      Said(key, PrefillSaid{key, EventFrom(u)});
    });
    if (!job.ok()) return Said(key, LegEnded{key, job.status()});
    leg->job = *job;
  });
}

void SimCluster::Start(StartDecode action) {
  const LegKey key = action.leg;
  Leg* leg = (legs_[key] = std::make_unique<Leg>()).get();
  leg->worker = Find(action.worker);
  NoteModel(action.request.request_id(), *leg->worker);
  Later(&leg->last_out, [this, key, leg, request = std::move(action.request)] {
    DecodeJob wanted = JobFrom(request);
    if (wanted.cache == CacheUse::kForget) return Forget(key, std::move(wanted));
    auto job = leg->worker->decode->Submit(std::move(wanted), [this, key](DecodeUpdate u) {
      if (auto* ended = std::get_if<DecodeEnded>(&u))
        return Said(key, LegEnded{key, ended->status});
      Said(key, DecodeSaid{key, EventFrom(u)});
    });
    if (!job.ok()) return Said(key, LegEnded{key, job.status()});
    leg->job = *job;
  });
}

void SimCluster::SendToClientNow(SendToClient action) {
  SimClient* client = clients_.at(action.request - 1).get();
  const uint32_t index = action.event.delta().index();
  for (const v1::Token& token : action.event.delta().tokens()) {
    std::vector<TokenId>& tokens = index == 0 ? client->tokens : client->others[index];
    ASSERT_EQ(token.position(), client->request.prompt.size() + tokens.size());
    tokens.push_back(token.token_id());
    if (index == 0) client->times.push_back(now_);
  }
  for (const v1::Token& token : action.event.prompt_logprobs().tokens()) {
    ASSERT_TRUE(client->tokens.empty());
    ASSERT_EQ(token.position(), client->scores.size());
    client->scores.push_back(token);
  }
  if (action.event.has_finished()) client->finished = action.event.finished();
  if (action.event.has_summary()) client->summary = action.event.summary();
  if (client->owes) return;
  client->owes = true;
  absl::Time taken = now_ + client->takes;
  Later(&taken, [this, client, key = action.request] {
    client->owes = false;
    if (!client->status) router_->Handle(ClientWritable{key}, now_);
  });
}

void SimCluster::Carry(CoreAction action) {
  if (auto* prefill = std::get_if<StartPrefill>(&action)) {
    Start(std::move(*prefill));
  } else if (auto* decode = std::get_if<StartDecode>(&action)) {
    Start(std::move(*decode));
  } else if (auto* cancel = std::get_if<CancelLeg>(&action)) {
    const auto found = legs_.find(cancel->leg);
    if (found == legs_.end()) return;
    Later(&found->second->last_out, [this, key = cancel->leg] {
      const auto leg = legs_.find(key);
      if (leg == legs_.end() || !leg->second->job) return;
      Worker* worker = leg->second->worker;
      worker->prefill ? worker->prefill->Cancel(*leg->second->job)
                      : worker->decode->Cancel(*leg->second->job);
    });
    Unpause(found->second.get());  // resumes the leg, so that its end arrives
  } else if (auto* pause = std::get_if<PauseLeg>(&action)) {
    const auto found = legs_.find(pause->leg);
    if (found == legs_.end()) return;
    Leg* leg = found->second.get();
    leg->paused = true;
    if (leg->worker->decode && leg->job) leg->worker->decode->SetPaused(*leg->job, true);
  } else if (auto* resume = std::get_if<ResumeLeg>(&action)) {
    const auto found = legs_.find(resume->leg);
    if (found == legs_.end()) return;
    Leg* leg = found->second.get();
    if (leg->worker->decode && leg->job) leg->worker->decode->SetPaused(*leg->job, false);
    Unpause(leg);
  } else if (auto* send = std::get_if<SendToClient>(&action)) {
    SendToClientNow(std::move(*send));
  } else if (auto* finish = std::get_if<FinishClient>(&action)) {
    SimClient* client = clients_.at(finish->request - 1).get();
    ASSERT_FALSE(client->status) << "a client was told twice how it ended";
    client->status = finish->status;
    --running_;
    absl::Time none = absl::InfinitePast();
    Later(&none, [this, key = finish->request] { router_->Handle(ClientGone{key}, now_); });
  } else if (auto* peers = std::get_if<SendPeers>(&action)) {
    Worker* worker = workers_.at(peers->attach - 1).get();
    std::vector<KvPeer> known;
    for (const v1::Peer& peer : peers->peers.peers()) {
      known.push_back({peer.epoch(), peer.address(), peer.kv_address()});
    }
    worker->kv_work.push_back([worker, known] { worker->plane->SetPeers(known); });
  } else if (const auto* taken = std::get_if<ReportTaken>(&action)) {
    workers_.at(taken->attach - 1)->cache_on_way = false;
  } else if (auto* serving = std::get_if<ServingChanged>(&action)) {
    serving_ = std::move(*serving);
  } else if (const auto* closed = std::get_if<CloseAttach>(&action)) {
    ADD_FAILURE() << "the router closed the stream of worker " << closed->attach << ": "
                  << closed->status;
  }
}

void SimCluster::Report(Worker* worker) {
  if (worker->gone) return;
  const auto links = worker->plane->links();
  if (now_ < worker->next_report && links.size() == worker->links) return;
  worker->next_report = now_ + kReportEvery;
  worker->links = links.size();
  v1::LoadReport report = ReportFrom(worker->load());
  report.set_draining(worker->draining);
  for (const ProvenLink& link : links) {
    v1::PeerLink* proto = report.add_links();
    proto->set_epoch(link.epoch);
    proto->set_link(link.link);
    proto->set_bytes_per_us(link.bytes_per_us);
  }
  Later(&worker->last_delivery, [this, worker, report] {
    router_->Handle(WorkerReported{worker->attach, report}, now_);
  });
  if (!worker->draining || worker->jobs() > 0) return;
  worker->gone = true;
  Later(&worker->last_delivery,
        [this, worker] { router_->Handle(WorkerDetached{worker->attach}, now_); });
}

void SimCluster::TellCacheChanges(Worker* worker) {
  if (worker->gone || worker->cache_on_way || now_ < worker->next_cache) return;
  const auto changes =
      worker->core()->name_log()->Next(&worker->cache_told, options_.max_cache_changes);
  if (!changes) return;
  worker->cache_on_way = true;
  worker->next_cache = changes->more ? now_ : now_ + options_.cache_interval;
  absl::StatusOr<CacheUpdate> update = ReadCacheChanges(CacheChangesToProto(*changes, now_));
  ASSERT_TRUE(update.ok()) << update.status();
  Later(&worker->last_delivery, [this, worker, update = *std::move(update)] {
    router_->Handle(WorkerCached{worker->attach, update}, now_);
  });
}

bool SimCluster::Turn() {
  bool worked = false;
  while (!deliveries_.empty() && deliveries_.begin()->first <= now_) {
    const auto deliver = std::move(deliveries_.begin()->second);
    deliveries_.erase(deliveries_.begin());
    deliver();
    // Carries out all actions before the next event, as the router does. For example, once the
    // router has paused a leg, which is one RPC to a worker, this leg delivers nothing more.
    for (CoreAction& action : router_->TakeActions()) Carry(std::move(action));
    worked = true;
  }
  router_->RunOnce(now_);
  for (CoreAction& action : router_->TakeActions()) {
    Carry(std::move(action));
    worked = true;
  }
  for (auto& worker : workers_) {
    worked |= worker->RunKv(now_);
    worked |= worker->RunCore(now_);
    Report(worker.get());
    TellCacheChanges(worker.get());
  }
  return worked;
}

absl::Time SimCluster::NextEvent() const {
  absl::Time next = std::min(now_ + kTick, router_->NextWake());
  if (!deliveries_.empty()) next = std::min(next, deliveries_.begin()->first);
  for (const auto& worker : workers_) {
    if (worker->busy_until > now_) next = std::min(next, worker->busy_until);
  }
  return std::max(next, now_ + kGrain);
}

bool SimCluster::Idle() const {
  if (running_ > 0 || router_->requests() > 0 || router_->legs() > 0 || !legs_.empty()) {
    return false;
  }
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->jobs() == 0; });
}

void SimCluster::CancelDueClients() {
  std::erase_if(running_clients_,
                [this](RequestKey key) { return clients_[key - 1]->status.has_value(); });
  for (const RequestKey key : running_clients_) {
    SimClient& client = *clients_[key - 1];
    if (client.cancel_at > now_ || client.cancelled) continue;
    client.cancelled = true;
    if (client.request.arrival < now_) router_->Handle(ClientCancelled{key}, now_);
  }
}

void SimCluster::RunUntil(absl::Time time) {
  while (now_ < time) {
    for (int idle = 0; idle < 2; ++idle) {
      if (Turn()) idle = 0;
    }
    CancelDueClients();
    now_ = std::min(time, NextEvent());
  }
}

void SimCluster::RunUntilIdle(absl::Duration limit) {
  const absl::Time end = now_ + limit;
  while (!Idle()) {
    ASSERT_LT(now_, end) << running_ << " clients, " << router_->legs() << " legs";
    RunUntil(now_ + absl::Milliseconds(20));
  }
  RunUntil(now_ + absl::Seconds(1));
}

void SimCluster::SetFaults(const FaultyTransport::Faults& faults) {
  for (auto& worker : workers_) {
    if (worker->decode) worker->transport->SetFaults(faults);
  }
}

void SimCluster::ExpectAllBack() {
  EXPECT_EQ(router_->requests(), 0u);
  EXPECT_EQ(router_->legs(), 0u);
  for (const auto& worker : workers_) {
    const std::string& address = worker->registration.address();
    const WorkerLoad load = worker->load();
    EXPECT_EQ(load.free_blocks, load.total_blocks) << address;
    EXPECT_EQ(load.running + load.waiting + load.leases, 0) << address;
    EXPECT_EQ(load.waiting_tokens, 0) << address;
    EXPECT_EQ(worker->jobs(), 0) << address;
    if (worker->publisher) {
      EXPECT_EQ(worker->publisher->open_handovers(), 0) << address;
    }
    if (worker->puller) {
      EXPECT_EQ(worker->puller->running_pulls(), 0) << address;
      EXPECT_EQ(worker->transport->reads_outstanding(), 0u) << address;
    }
  }
}

void SimCluster::ExpectRouterKnows(const CheckedRequest& request) {
  const auto prompt = NamePromptBlocks(serving_, /*secret=*/"", models_[0]->config().rope,
                                       request.cache_salt, request.prompt);
  ASSERT_NE(prompt, nullptr);
  std::map<std::string, int> keepers;
  for (const auto& worker : workers_) {
    std::set<BlockName> kept;
    NameLog::Cursor all;
    if (const auto changes = worker->core()->name_log()->Next(&all, SIZE_MAX)) {
      for (const NameChanges::Addition& one : changes->added) kept.insert(one.name);
    }
    int leading = 0;
    while (leading < static_cast<int>(prompt->size()) && kept.contains((*prompt)[leading])) {
      ++leading;
    }
    if (leading > 0) keepers[worker->registration.address()] = leading;
  }
  EXPECT_EQ(router_->KeepersOf(*prompt), keepers) << request.request_id;
}

uint64_t SimCluster::steps() const {
  uint64_t steps = 0;
  for (const auto& worker : workers_) steps += worker->load().steps;
  return steps;
}

absl::Duration SimCluster::busy(v1::WorkerRole role) const {
  absl::Duration busy;
  for (const auto& worker : workers_) {
    if (worker->role == role) busy += worker->busy;
  }
  return busy;
}

}  // namespace baton
