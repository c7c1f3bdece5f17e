#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <set>
#include <utility>

#include <malloc.h>

#include "absl/strings/str_cat.h"
#include "common/engine/fake_model.h"
#include "common/engine/late_backend.h"
#include "common/rpc/limits.h"
#include "common/sampling/sampler.h"
#include "common/worker/cache_proto.h"
#include "gtest/gtest.h"
#include "kernels/fake/fake_backend.h"
#include "router/core/worker_caches.h"
#include "router/door/block_naming.h"
#include "tests/sim/sim_wire.h"

namespace baton {
namespace {

// Max step of the simulated clock. The clock also advances when no event is due, because the KV
// planes (the connections between workers) have timers of their own.
constexpr absl::Duration kTick = absl::Milliseconds(2);
// The same while there is no request and no job: most turns of a history are such ones.
constexpr absl::Duration kIdleTick = absl::Milliseconds(20);
// Min step of the clock. Events that are due within one such step happen together.
constexpr absl::Duration kGrain = absl::Microseconds(250);

// Keeps freed memory for the next cluster. Returning it to the system, and the page faults when it
// is used again, would take a quarter of a history's time.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace

// The clock of one process. Exact if it was never skewed.
class SimCluster::Clock {
 public:
  void Skew(std::mt19937_64* random) {
    const auto within = [random](double limit) {
      return std::uniform_real_distribution<double>(-limit, limit)(*random);
    };
    skewed_ = true;
    ahead_ = absl::Hours(within(24));
    rate_ = 1 + within(0.01);
  }
  // Returns what the clock shows at a time of the simulation.
  absl::Time Shows(absl::Time time) const {
    if (!skewed_ || time == absl::InfiniteFuture()) return time;
    const double since = static_cast<double>(absl::ToInt64Nanoseconds(time - SimBegin()));
    return SimBegin() + ahead_ + absl::Nanoseconds(static_cast<int64_t>(since * rate_));
  }
  // Returns the time of the simulation at which the clock shows `shown`.
  absl::Time TimeWhen(absl::Time shown) const {
    if (!skewed_ || shown == absl::InfiniteFuture() || shown == absl::InfinitePast()) return shown;
    return SimBegin() + (shown - SimBegin() - ahead_) / rate_;
  }

 private:
  bool skewed_ = false;
  absl::Duration ahead_;
  double rate_ = 1;
};

struct SimCluster::Worker {
  // The worker's Attach stream to one router.
  struct Stream {
    bool open = true;
    bool lost = false;  // the worker was killed, and what is still on its way never arrives
    absl::Time next_report = absl::InfinitePast();
    size_t links = 0;  // number of links in the last report
    absl::Time last_delivery = absl::InfinitePast();
    NameLog::Cursor cache_told;  // position of the router in the log of the prefix cache
    bool cache_on_way = false;   // the router has not taken the last message on the prefix cache
    absl::Time next_cache = absl::InfinitePast();
    std::vector<KvPeer> peers;  // as the router named them last
  };

  v1::WorkerRole role;
  Clock clock;
  int model = 0;
  bool draining = false;
  bool killed = false;  // the process has ended, and its parts were destroyed
  Health health = Health::kWell;
  AttachKey attach = 0;  // the same number at each router
  v1::Registration registration;
  std::unique_ptr<Transport> wire;
  std::unique_ptr<FaultyTransport> transport;
  std::unique_ptr<KvPlane> plane;
  std::unique_ptr<KvPublisher> publisher;
  std::unique_ptr<KvPuller> puller;
  std::unique_ptr<Backend> backend;
  std::deque<std::function<void()>> kv_work;
  PrefillMetrics prefill_metrics;
  std::unique_ptr<PrefillWorker> prefill;
  std::unique_ptr<DecodeWorker> decode;
  absl::Duration spent;  // time that the current step takes
  absl::Duration busy;   // time of all steps so far
  absl::Time busy_until = absl::InfinitePast();
  std::vector<Stream> streams;  // index: number of the router

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
    return plane->RunOnce(clock.Shows(now)) || worked;
  }
  bool RunCore(absl::Time now) {
    if (now < busy_until) return false;
    spent = absl::ZeroDuration();
    const absl::Time shown = clock.Shows(now);
    const bool worked = prefill ? prefill->RunOnce(shown) : decode->RunOnce(shown);
    busy_until = now + spent;
    busy += spent;
    return worked;
  }
  // Tells the KV plane all peers that any router names.
  void TellPeers() {
    std::vector<KvPeer> all;
    std::set<WorkerEpoch> named;
    for (const Stream& stream : streams) {
      for (const KvPeer& peer : stream.peers) {
        if (named.insert(peer.epoch).second) all.push_back(peer);
      }
    }
    kv_work.push_back([this, all = std::move(all)] { plane->SetPeers(all); });
  }
  // Destroys the cores before the planes that they use.
  void Destroy() {
    prefill.reset();
    decode.reset();
    kv_work.clear();
    publisher.reset();
    puller.reset();
    plane.reset();
    transport.reset();
    wire.reset();
    backend.reset();
  }
};

struct SimCluster::Leg {
  Worker* worker = nullptr;
  std::optional<uint64_t> job;
  bool begun = false;   // the RPC has arrived at the worker
  bool ended = false;   // its end has arrived at the router, or is on its way
  bool lost = false;    // the worker was killed, and what is still on its way never arrives
  bool silent = false;  // the worker sends nothing until the RPC is cancelled
  bool lies = false;
  bool paused = false;
  std::deque<CoreEvent> held;  // events that arrived while the leg was paused
  absl::Time last_out = absl::InfinitePast(), last_in = absl::InfinitePast();
};

struct SimCluster::Router {
  size_t number = 0;
  Clock clock;
  std::unique_ptr<LoggedCore> core;
  ServingChanged serving;  // as the core told it last
  std::map<LegKey, std::unique_ptr<Leg>> legs;
};

SimCluster::SimCluster(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      clock_random_(options_.seed),
      fabric_({.single_threaded = true}) {
  KeepFreedMemory();
  for (int model = 0; model < 2; ++model) {
    models_.push_back(Model::WithoutWeights(ConfigOf(options_, model)));
  }
  layout_ = models_[0]->LayoutFor(options_.block_tokens, DType::kF16);
  for (int i = 0; i < options_.routers; ++i) {
    RouterCoreOptions router;
    router.model_name = "fake";
    router.context_tokens = options_.context;
    router.vocab = options_.vocab;
    router.max_queued = 1 << 20;
    router.mode = options_.mode;
    router.pair_wait = router.room_wait = absl::Hours(1);
    router.prefix_index_bytes = options_.prefix_index_bytes;
    router.policy_seed = options_.seed + static_cast<uint64_t>(i) * 1000003;
    router.routed_for = absl::Milliseconds(100);
    if (options_.adjust_router) options_.adjust_router(&router);
    routers_.push_back(std::make_unique<Router>());
    routers_.back()->number = static_cast<size_t>(i);
    if (options_.skewed_clocks) routers_.back()->clock.Skew(&clock_random_);
    routers_.back()->core = std::make_unique<LoggedCore>(router, i == 0 ? options_.log : nullptr);
  }
  for (int i = 0; i < options_.prefill_workers; ++i) AddWorker(v1::WORKER_ROLE_PREFILL, 0);
  for (int i = 0; i < options_.decode_workers; ++i) AddWorker(v1::WORKER_ROLE_DECODE, 0);
  RunUntil(now_ + absl::Seconds(2));
}

SimCluster::~SimCluster() {
  for (auto& worker : workers_) worker->Destroy();
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
  const int number = static_cast<int>(workers_.size());
  const absl::string_view name = role == v1::WORKER_ROLE_PREFILL ? "prefill-" : "decode-";
  const Worker* worker = CreateWorker(role, model, absl::StrCat(name, number, ":1"));
  for (auto& router : routers_) {
    router->core->Handle(WorkerAttached{worker->attach, worker->registration},
                         router->clock.Shows(now_));
  }
  return number;
}

SimCluster::Worker* SimCluster::CreateWorker(v1::WorkerRole role, int model,
                                             const std::string& address) {
  const bool prefills = role == v1::WORKER_ROLE_PREFILL;
  workers_.push_back(std::make_unique<Worker>());
  if (options_.skewed_clocks) workers_.back()->clock.Skew(&clock_random_);
  Worker* worker = workers_.back().get();
  worker->role = role;
  worker->model = model;
  worker->attach = workers_.size();
  worker->streams.resize(routers_.size());
  worker->wire = fabric_.CreateTransport();
  worker->transport =
      std::make_unique<FaultyTransport>(worker->wire.get(), random_(), [this] { return now_; });
  const Options::StepTimes& times = prefills ? options_.prefill_times : options_.decode_times;
  FakeBackendOptions fake = {.per_step = times.per_step,
                             .per_row = times.per_row,
                             .spend = [worker](absl::Duration d) { worker->spent += d; }};
  if (options_.one_step_ahead && !prefills) {
    worker->backend = std::make_unique<LateBackend>(
        LateBackendOptions{.fake = std::move(fake), .seed = random_() | 1});
  } else {
    worker->backend = CreateFakeBackend(std::move(fake));
  }
  KvPlane::Options plane;
  plane.epoch = workers_.size();
  plane.numerics_id = worker->backend->numerics_id();
  plane.layout = layout_;
  plane.blocks = prefills ? options_.prefill_blocks : options_.decode_blocks;
  plane.proves_links = !prefills;
  plane.pattern_bytes = 8192;  // Most of the time would go into longer ones.
  worker->plane = KvPlane::Create(worker->transport.get(), plane).value();
  const auto on_kv_thread = [worker](std::function<void()> work) {
    worker->kv_work.push_back(std::move(work));
  };
  const PrefixCacheSettings cache = {.enabled = options_.prefix_cache,
                                     .model_fingerprint = models_[model]->fingerprint(),
                                     .check_content = options_.prefix_cache};
  if (prefills) {
    PrefillWorker::Options prefill = options_.prefill;
    prefill.cache = cache;
    prefill.metrics = &worker->prefill_metrics;
    worker->publisher = KvPublisher::Create(worker->plane.get(), {.owner = address});
    worker->prefill =
        PrefillWorker::Create(prefill, models_[model].get(), worker->backend.get(),
                              worker->plane.get(), worker->publisher.get(), on_kv_thread)
            .value();
  } else {
    DecodeWorker::Options decode = options_.decode;
    decode.cache = cache;
    decode.metrics = &decode_metrics_;
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
  return worker;
}

void SimCluster::Drain(int index) {
  Worker& worker = *workers_.at(index);
  worker.draining = true;
  worker.core()->Drain();
  for (Worker::Stream& stream : worker.streams) stream.next_report = absl::InfinitePast();
}

int SimCluster::Kill(int number, absl::Duration notice) {
  Worker* worker = workers_.at(number).get();
  EXPECT_FALSE(worker->killed) << "worker " << number << " was killed twice";
  worker->killed = true;
  worker->Destroy();
  const auto within_notice = [&](absl::Time last) {
    return std::max(last, now_ + notice * std::uniform_real_distribution<double>(0, 1)(random_));
  };
  int open = 0;
  for (auto& router : routers_) {
    for (auto& [key, owned] : router->legs) {
      Leg* leg = owned.get();
      // An RPC that is still on its way to the worker finds no process there.
      if (leg->worker != worker || !leg->begun) continue;
      leg->lost = random_() % 2 == 0;
      if (leg->ended && !leg->lost) continue;
      leg->held.clear();
      ++open;
      leg->ended = true;
      leg->last_in = within_notice(leg->last_in);
      const LegEnded end{key, absl::UnavailableError("the connection to the worker broke")};
      Later(&leg->last_in, [this, r = router.get(), leg, end] { Deliver(r, leg, end); });
    }
    Worker::Stream& stream = worker->streams[router->number];
    if (!std::exchange(stream.open, false)) continue;
    stream.lost = random_() % 2 == 0;
    stream.last_delivery = within_notice(stream.last_delivery);
    Later(&stream.last_delivery, [this, r = router.get(), worker] {
      r->core->Handle(WorkerDetached{worker->attach}, r->clock.Shows(now_));
    });
  }
  return open;
}

int SimCluster::Restart(int killed, bool same_address) {
  const int number = static_cast<int>(workers_.size());
  const Worker& before = *workers_.at(killed);
  EXPECT_TRUE(before.killed) << "worker " << killed << " still runs";
  std::string address = before.registration.address();
  if (!same_address) address = absl::StrCat("restarted-", number, ":1");
  Worker* worker = CreateWorker(before.role, before.model, address);
  if (worker->decode) worker->transport->SetFaults(faults_);
  for (auto& router : routers_) {
    Worker::Stream* stream = &worker->streams[router->number];
    Later(&stream->last_delivery, [this, r = router.get(), worker, stream] {
      if (stream->lost) return;
      r->core->Handle(WorkerAttached{worker->attach, worker->registration}, r->clock.Shows(now_));
    });
  }
  return number;
}

void SimCluster::NoteModel(const std::string& request_id, const Worker& worker) {
  const auto [found, added] = model_of_.try_emplace(request_id, worker.model);
  EXPECT_EQ(found->second, worker.model) << request_id << " was begun with another model";
}

std::vector<TokenId> SimCluster::Expected(const CheckedRequest& request, int model,
                                          std::vector<float>* logprobs) const {
  SamplingOptions sampling = request.sampling;
  if (logprobs != nullptr) sampling.logprobs = 0;
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
    const SampledToken token =
        *sampler.Sample(absl::MakeSpan(logits), sampling, prompt + generated, generated, &history);
    const TokenId id = token.id;
    if (logprobs != nullptr) logprobs->push_back(*token.logprob);
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

SimClient* SimCluster::Add(CheckedRequest request, int number) {
  Router* router = routers_.at(number).get();
  clients_.push_back(std::make_unique<SimClient>());
  SimClient* client = clients_.back().get();
  const RequestKey key = clients_.size();
  client->request = request;
  client->router = number;
  ++running_;
  running_clients_.push_back(key);
  At(request.arrival, [this, router, key, request = std::move(request)]() mutable {
    if (request.prefix_cache && options_.prefix_index_bytes > 0) {
      request.block_names =
          NamePromptBlocks(router->serving, /*secret=*/"", models_[0]->config().rope,
                           request.cache_salt, request.prompt);
    }
    request.arrival = router->clock.Shows(request.arrival);
    request.deadline = router->clock.Shows(request.deadline);
    router->core->Handle(ClientArrived{key, std::move(request)}, router->clock.Shows(now_));
  });
  return client;
}

void SimCluster::At(absl::Time time, std::function<void()> what) {
  deliveries_.emplace(time, std::move(what));
}

// Delivers after a random delay. Deliveries with the same `last` arrive in the order of the calls.
void SimCluster::Later(absl::Time* last, std::function<void()> deliver) {
  const double share = std::uniform_real_distribution<double>(0, 1)(random_);
  *last = std::max(*last, now_ + options_.wire_delay * share);
  At(*last, std::move(deliver));
}

SimCluster::Worker* SimCluster::Find(const WorkerName& name) {
  for (auto& worker : workers_) {
    const v1::Registration& registration = worker->registration;
    if (registration.address() == name.address && registration.epoch() == name.epoch) {
      return worker.get();
    }
  }
  return nullptr;
}

void SimCluster::Deliver(Router* router, Leg* leg, CoreEvent event) {
  if (leg->paused) {
    leg->held.push_back(std::move(event));
    return;
  }
  const auto* ended = std::get_if<LegEnded>(&event);
  const LegKey over = ended != nullptr ? ended->leg : 0;
  router->core->Handle(std::move(event), router->clock.Shows(now_));
  if (over != 0) router->legs.erase(over);
}

void SimCluster::Unpause(Router* router, Leg* leg) {
  leg->paused = false;
  std::deque<CoreEvent> held;
  held.swap(leg->held);
  for (CoreEvent& event : held) Deliver(router, leg, std::move(event));
}

void SimCluster::Said(Router* router, LegKey key, CoreEvent event) {
  Leg* leg = router->legs.at(key).get();
  leg->ended |= std::holds_alternative<LegEnded>(event);
  if (leg->lies) Falsify(&event);
  Later(&leg->last_in, [this, router, leg, event = std::move(event)] {
    if (!leg->lost) Deliver(router, leg, event);
  });
}

void SimCluster::Falsify(CoreEvent* event) {
  const auto falsify = [this](v1::Token* token) {
    if (random_() % 2 == 0) {
      token->set_token_id(token->token_id() + options_.vocab);
    } else {
      token->set_position(token->position() + 2);
    }
  };
  if (auto* prefill = std::get_if<PrefillSaid>(event);
      prefill && prefill->event.has_first_token()) {
    falsify(prefill->event.mutable_first_token()->mutable_token());
  } else if (auto* decode = std::get_if<DecodeSaid>(event); decode && decode->event.has_tokens()) {
    for (v1::Token& token : *decode->event.mutable_tokens()->mutable_tokens()) falsify(&token);
  }
}

void SimCluster::SetHealth(int worker, Health health) {
  workers_.at(static_cast<size_t>(worker))->health = health;
}

template <class Job>
void SimCluster::Forget(Router* router, LegKey key, Job job) {
  WorkerCore* core = router->legs.at(key)->worker->core();
  Said(router, key,
       LegEnded{key,
                core->Forget(std::move(job.tokens), job.original_prompt_tokens, job.cache_salt)});
}

void SimCluster::StartLeg(Router* router, LegKey key, const WorkerName& worker,
                          const std::string& request_id, absl::Time deadline,
                          std::function<void(Leg*)> submit) {
  Leg* leg = (router->legs[key] = std::make_unique<Leg>()).get();
  leg->worker = Find(worker);
  NoteModel(request_id, *leg->worker);
  Later(&leg->last_out, [this, router, key, leg, deadline, submit = std::move(submit)] {
    // A process with another epoch at this address refuses with the same status.
    if (leg->worker->killed) {
      return Said(router, key, LegEnded{key, absl::UnavailableError("the worker is gone")});
    }
    leg->begun = true;
    leg->silent = leg->worker->health == Health::kSilent;
    leg->lies = leg->worker->health == Health::kLies;
    if (leg->worker->health == Health::kFails) {
      return Said(router, key, LegEnded{key, absl::InternalError("the device failed")});
    }
    if (!leg->silent) return submit(leg);
    if (deadline == absl::InfiniteFuture()) return;
    deliveries_.emplace(std::max(now_, router->clock.TimeWhen(deadline)), [this, router, key] {
      const auto found = router->legs.find(key);
      if (found == router->legs.end() || found->second->ended || found->second->lost) return;
      Said(router, key, LegEnded{key, absl::DeadlineExceededError("Deadline Exceeded")});
    });
  });
}

void SimCluster::Start(Router* router, StartPrefill action) {
  const LegKey key = action.leg;
  const std::string id = action.request.request_id();
  StartLeg(router, key, action.worker, id, action.deadline,
           [this, router, key, request = std::move(action.request)](Leg* leg) {
             PrefillJob wanted = JobFrom(request, leg->worker->clock.Shows(now_));
             if (wanted.cache == CacheUse::kForget) return Forget(router, key, std::move(wanted));
             auto job = leg->worker->prefill->Submit(
                 std::move(wanted), [this, router, key](PrefillUpdate u) {
                   if (auto* ended = std::get_if<PrefillEnded>(&u))
                     return Said(router, key, LegEnded{key, ended->status});
                   Said(router, key, PrefillSaid{key, EventFrom(u)});
                 });
             if (!job.ok()) return Said(router, key, LegEnded{key, job.status()});
             leg->job = *job;
           });
}

void SimCluster::Start(Router* router, StartDecode action) {
  const LegKey key = action.leg;
  const std::string id = action.request.request_id();
  StartLeg(router, key, action.worker, id, action.deadline,
           [this, router, key, request = std::move(action.request)](Leg* leg) {
             DecodeJob wanted = JobFrom(request);
             if (wanted.cache == CacheUse::kForget) return Forget(router, key, std::move(wanted));
             auto job = leg->worker->decode->Submit(
                 std::move(wanted), [this, router, key](DecodeUpdate u) {
                   if (auto* ended = std::get_if<DecodeEnded>(&u))
                     return Said(router, key, LegEnded{key, ended->status});
                   Said(router, key, DecodeSaid{key, EventFrom(u)});
                 });
             if (!job.ok()) return Said(router, key, LegEnded{key, job.status()});
             leg->job = *job;
           });
}

void SimCluster::SendToClientNow(Router* router, SendToClient action) {
  SimClient* client = clients_.at(action.request - 1).get();
  if (const auto* delta = std::get_if<AnswerDelta>(&action.event)) {
    for (const v1::Token& token : delta->tokens) {
      std::vector<TokenId>& tokens =
          delta->index == 0 ? client->tokens : client->others[delta->index];
      ASSERT_EQ(token.position(), client->request.prompt.size() + tokens.size());
      tokens.push_back(token.token_id());
      if (token.has_logprob()) client->logprobs[delta->index].push_back(token.logprob());
      if (delta->index == 0) client->times.push_back(now_);
    }
  } else if (const auto* scores = std::get_if<PromptLogprobs>(&action.event)) {
    for (const v1::Token& token : scores->tokens) {
      ASSERT_TRUE(client->tokens.empty());
      ASSERT_EQ(token.position(), client->scores.size());
      client->scores.push_back(token);
    }
  } else if (const auto* finished = std::get_if<AnswerFinished>(&action.event)) {
    client->finished = *finished;
  } else if (const auto* summary = std::get_if<AnswerSummary>(&action.event)) {
    client->summary = *summary;
  }
  if (client->owes) return;
  client->owes = true;
  absl::Time taken = now_ + client->takes;
  Later(&taken, [this, router, client, key = action.request] {
    client->owes = false;
    if (!client->status) router->core->Handle(ClientWritable{key}, router->clock.Shows(now_));
  });
}

bool SimCluster::CarryOut(Router* router) {
  std::vector<CoreAction> actions = router->core->TakeActions();
  for (CoreAction& action : actions) Carry(router, std::move(action));
  return !actions.empty();
}

void SimCluster::Carry(Router* router, CoreAction action) {
  const auto leg_of = [router](LegKey key) {
    const auto found = router->legs.find(key);
    return found == router->legs.end() ? nullptr : found->second.get();
  };
  if (auto* prefill = std::get_if<StartPrefill>(&action)) {
    Start(router, std::move(*prefill));
  } else if (auto* decode = std::get_if<StartDecode>(&action)) {
    Start(router, std::move(*decode));
  } else if (auto* cancel = std::get_if<CancelLeg>(&action)) {
    Leg* leg = leg_of(cancel->leg);
    if (leg == nullptr) return;
    Later(&leg->last_out, [this, router, leg_of, key = cancel->leg] {
      const Leg* cancelled = leg_of(key);
      if (cancelled == nullptr || cancelled->worker->killed) return;
      if (cancelled->silent && !cancelled->ended && !cancelled->lost) {
        return Said(router, key, LegEnded{key, absl::CancelledError("cancelled")});
      }
      if (!cancelled->job) return;
      cancelled->worker->core()->Cancel(*cancelled->job);
    });
    Unpause(router, leg);  // resumes the leg, so that its end arrives
  } else if (auto* pause = std::get_if<PauseLeg>(&action)) {
    Leg* leg = leg_of(pause->leg);
    if (leg == nullptr) return;
    leg->paused = true;
    if (leg->worker->decode && leg->job) leg->worker->decode->SetPaused(*leg->job, true);
  } else if (auto* resume = std::get_if<ResumeLeg>(&action)) {
    Leg* leg = leg_of(resume->leg);
    if (leg == nullptr) return;
    if (leg->worker->decode && leg->job) leg->worker->decode->SetPaused(*leg->job, false);
    Unpause(router, leg);
  } else if (auto* send = std::get_if<SendToClient>(&action)) {
    SendToClientNow(router, std::move(*send));
  } else if (auto* finish = std::get_if<FinishClient>(&action)) {
    SimClient* client = clients_.at(finish->request - 1).get();
    ASSERT_FALSE(client->status) << "a client was told twice how it ended";
    client->status = finish->status;
    --running_;
    absl::Time none = absl::InfinitePast();
    Later(&none, [this, router, key = finish->request] {
      router->core->Handle(ClientGone{key}, router->clock.Shows(now_));
    });
  } else if (auto* peers = std::get_if<SendPeers>(&action)) {
    Worker* worker = workers_.at(peers->attach - 1).get();
    if (worker->killed) return;
    std::vector<KvPeer>& known = worker->streams[router->number].peers;
    known.clear();
    for (const v1::Peer& peer : peers->peers.peers()) {
      known.push_back({peer.epoch(), peer.address(), peer.kv_address()});
    }
    worker->TellPeers();
  } else if (const auto* taken = std::get_if<ReportTaken>(&action)) {
    workers_.at(taken->attach - 1)->streams[router->number].cache_on_way = false;
  } else if (auto* serving = std::get_if<ServingChanged>(&action)) {
    router->serving = std::move(*serving);
  } else if (const auto* closed = std::get_if<CloseAttach>(&action)) {
    // The router may learn of a restart before the old process's stream breaks.
    EXPECT_TRUE(workers_.at(closed->attach - 1)->killed)
        << "the router closed the stream of worker " << closed->attach << ": " << closed->status;
  }
}

void SimCluster::Report(Worker* worker) {
  const auto links = worker->plane->links();
  for (auto& router : routers_) {
    Worker::Stream* stream = &worker->streams[router->number];
    if (!stream->open) continue;
    if (now_ < stream->next_report && links.size() == stream->links) continue;
    stream->next_report = now_ + options_.report_interval;
    stream->links = links.size();
    v1::LoadReport report = ReportFrom(worker->load());
    report.set_draining(worker->draining);
    for (const ProvenLink& link : links) {
      v1::PeerLink* proto = report.add_links();
      proto->set_epoch(link.epoch);
      proto->set_link(link.link);
      proto->set_bytes_per_us(link.bytes_per_us);
    }
    const auto deliver = [this, r = router.get(), stream](CoreEvent event) {
      Later(&stream->last_delivery, [this, r, stream, event = std::move(event)] {
        if (!stream->lost) r->core->Handle(event, r->clock.Shows(now_));
      });
    };
    deliver(WorkerReported{worker->attach, report});
    if (!worker->draining || worker->jobs() > 0) continue;
    stream->open = false;
    deliver(WorkerDetached{worker->attach});
  }
}

void SimCluster::TellCacheChanges(Worker* worker) {
  for (auto& router : routers_) {
    Worker::Stream* stream = &worker->streams[router->number];
    if (!stream->open || stream->cache_on_way || now_ < stream->next_cache) continue;
    const auto changes =
        worker->core()->name_log()->Next(&stream->cache_told, options_.max_cache_changes);
    if (!changes) continue;
    stream->cache_on_way = true;
    stream->next_cache = changes->more ? now_ : now_ + options_.cache_interval;
    v1::CacheChanges message = CacheChangesToProto(*changes, worker->clock.Shows(now_));
    ASSERT_EQ(CheckCacheChanges(message), absl::OkStatus());
    Later(&stream->last_delivery,
          [this, r = router.get(), worker, stream, message = std::move(message)] {
            if (!stream->lost)
              r->core->Handle(WorkerCached{worker->attach, message}, r->clock.Shows(now_));
          });
  }
}

bool SimCluster::Turn() {
  bool worked = false;
  while (!deliveries_.empty() && deliveries_.begin()->first <= now_) {
    const auto deliver = std::move(deliveries_.begin()->second);
    deliveries_.erase(deliveries_.begin());
    deliver();
    // Carries out all actions before the next event, as the router does. For example, once the
    // router has paused a leg, which is one RPC to a worker, this leg delivers nothing more.
    for (auto& router : routers_) CarryOut(router.get());
    worked = true;
  }
  for (auto& router : routers_) {
    router->core->RunOnce(router->clock.Shows(now_));
    worked |= CarryOut(router.get());
  }
  for (auto& worker : workers_) {
    if (worker->killed) continue;
    worked |= worker->RunKv(now_);
    worked |= worker->RunCore(now_);
    Report(worker.get());
    TellCacheChanges(worker.get());
  }
  return worked;
}

absl::Time SimCluster::NextEvent() const {
  absl::Time next = now_ + (Idle() ? kIdleTick : kTick);
  for (const auto& router : routers_) {
    next = std::min(next, router->clock.TimeWhen(router->core->NextWake()));
  }
  if (!deliveries_.empty()) next = std::min(next, deliveries_.begin()->first);
  for (const auto& worker : workers_) {
    if (!worker->killed && worker->busy_until > now_) next = std::min(next, worker->busy_until);
  }
  return std::max(next, now_ + kGrain);
}

bool SimCluster::Idle() const {
  if (running_ > 0) return false;
  for (const auto& router : routers_) {
    if (router->core->requests() > 0 || router->core->legs() > 0 || !router->legs.empty()) {
      return false;
    }
  }
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->killed || worker->jobs() == 0; });
}

void SimCluster::CancelDueClients() {
  std::erase_if(running_clients_,
                [this](RequestKey key) { return clients_[key - 1]->status.has_value(); });
  for (const RequestKey key : running_clients_) {
    SimClient& client = *clients_[key - 1];
    if (client.cancel_at > now_ || client.cancelled) continue;
    client.cancelled = true;
    if (client.request.arrival >= now_) continue;
    Router& router = *routers_[client.router];
    router.core->Handle(ClientCancelled{key}, router.clock.Shows(now_));
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
    if (now_ >= end) {
      for (const auto& router : routers_) {
        ADD_FAILURE() << running_ << " clients are left, and router " << router->number << " has "
                      << router->core->legs() << " legs";
      }
      return;
    }
    RunUntil(now_ + absl::Milliseconds(20));
  }
  RunUntil(now_ + absl::Seconds(1));
}

void SimCluster::SetFaults(const FaultyTransport::Faults& faults) {
  faults_ = faults;
  for (auto& worker : workers_) {
    if (worker->decode) worker->transport->SetFaults(faults);
  }
}

void SimCluster::ExpectAllBack() {
  for (const auto& router : routers_) {
    EXPECT_EQ(router->core->requests(), 0u) << "router " << router->number;
    EXPECT_EQ(router->core->legs(), 0u) << "router " << router->number;
  }
  for (const auto& worker : workers_) {
    if (worker->killed) continue;
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

void SimCluster::ExpectRoutersKnow(const CheckedRequest& request) {
  const auto prompt =
      NamePromptBlocks(routers_[0]->serving, /*secret=*/"", models_[0]->config().rope,
                       request.cache_salt, request.prompt);
  ASSERT_NE(prompt, nullptr);
  std::map<std::string, int> keepers;
  for (const auto& worker : workers_) {
    if (worker->killed) continue;
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
  for (const auto& router : routers_) {
    EXPECT_EQ(router->core->KeepersOf(*prompt), keepers)
        << request.request_id << ", router " << router->number;
  }
}

const LoggedCore& SimCluster::router(int number) const { return *routers_.at(number)->core; }

uint64_t SimCluster::steps() const {
  uint64_t steps = 0;
  for (const auto& worker : workers_) {
    if (!worker->killed) steps += worker->load().steps;
  }
  return steps;
}

absl::Duration SimCluster::busy(v1::WorkerRole role) const {
  absl::Duration busy;
  for (const auto& worker : workers_) {
    if (worker->role == role) busy += worker->busy;
  }
  return busy;
}

uint64_t SimCluster::prefill_cached_tokens() const {
  uint64_t tokens = 0;
  for (const auto& worker : workers_) tokens += worker->prefill_metrics.cached_tokens.value();
  return tokens;
}

}  // namespace baton
