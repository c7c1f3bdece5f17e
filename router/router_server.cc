#include "router/router_server.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/free_memory.h"
#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/mutex.h"
#include "common/base/steady_time.h"
#include "common/base/wakeup.h"
#include "common/rpc/retry_after.h"
#include "common/rpc/rpc_server.h"
#include "common/tokenizer/stream_decoder.h"
#include "router/door/door.h"
#include "router/grpc/inference_service.h"
#include "router/grpc/message_size.h"
#include "router/membership_service.h"
#include "router/worker_legs.h"

namespace baton {
namespace {

// Capacity of the inbox for messages to the loop. When it is full, only new requests are refused.
// All other messages are always taken, because the number of streams bounds them.
constexpr size_t kInbox = 1 << 14;
constexpr absl::Duration kIdle = absl::Milliseconds(50);
// If the loop runs later than planned by more than this, the process was stopped: nothing in the
// loop takes so long.
constexpr absl::Duration kOverslept = absl::Seconds(1);
constexpr char kInference[] = "baton.v1.Inference";
constexpr char kMembership[] = "baton.v1.Membership";

RouterCoreOptions CoreOptions(const RouterServer::Options& options, RequestMetrics* metrics) {
  RouterCoreOptions core = options.core;
  core.metrics = metrics;
  core.model_name = options.model.name;
  core.context_tokens = options.model.config.context;
  core.vocab = options.model.config.vocab;
  core.new_decoder = [tokenizer = options.model.tokenizer](absl::Span<const TokenId> prompt,
                                                           bool skip_special) {
    const auto decoder =
        std::make_shared<StreamDecoder>(StreamDecoder::ForAnswer(tokenizer, prompt, skip_special));
    return TextDecoder{[decoder](TokenId id) { return decoder->Push(id); },
                       [decoder] { return decoder->Finish(); }};
  };
  return core;
}

// Returns the size of the largest message that can be a valid one: a prompt as text or as token
// ids, a text to tokenise, or a message of a worker, with some room for the other fields.
size_t MaxMessageBytes(const RouterServer::Options& options) {
  return std::clamp(std::max(MaxBytesBesideText(options.model.config.context),
                             options.limits.text_bytes + kMaxReportBytes),
                    kMaxReportBytes, size_t{kMaxMessageBytes});
}

// Lets at least two of the longest texts wait.
EncodePool::Options PoolOptions(const RouterServer::Options& options) {
  EncodePool::Options pool;
  pool.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8);
  pool.max_bytes = std::max(pool.max_bytes, 2 * options.limits.text_bytes);
  return pool;
}

// Lets a connection send at least two of the longest messages at the same time, and all connections
// together at least as much.
ConnectionLimits ConnectionLimitsFor(const RouterServer::Options& options) {
  ConnectionLimits limits = options.connections;
  for (uint64_t* bytes : {&limits.unfinished_bytes, &limits.all_unfinished_bytes}) {
    if (*bytes > 0) *bytes = std::max(*bytes, uint64_t{2} * MaxMessageBytes(options));
  }
  return limits;
}

}  // namespace

struct RouterServer::Parts {
  explicit Parts(const Options& options)
      : door({.model = options.model,
              .limits = options.limits,
              .naming_secret =
                  options.core.prefix_index_bytes > 0 ? std::optional(options.token) : std::nullopt,
              .max_open_bytes = options.max_open_bytes,
              .max_text_calls = static_cast<size_t>(options.max_text_calls),
              .pool = PoolOptions(options)},
             WayToCore(static_cast<size_t>(options.core.max_queued))),
        inbox(kInbox),
        connections(ConnectionLimitsFor(options)),
        core_mode(options.core.mode),
        keys(options.keys != nullptr ? options.keys : std::make_shared<ApiKeys>()),
        inference(&door, &connections, keys.get()),
        membership(options.token, options.connect_limit, options.limits.request_limit, &connections,
                   [this](CoreEvent event) { Tell(std::move(event)); }),
        legs(options.token, [this](CoreEvent event) { Tell(std::move(event)); }),
        core(CoreOptions(options, &metrics)) {}

  Door::Core WayToCore(size_t max_queued) {
    return {// Runs before the prompt is tokenised, so that it costs little to refuse a request. A
            // caller with fewer calls than its share gets to the core, which makes a place for it.
            .room =
                [this, max_queued](size_t calls, size_t callers) {
                  if (queued < max_queued || calls <= max_queued / callers) return absl::OkStatus();
                  return WithRetryAfter(
                      absl::ResourceExhaustedError(absl::StrCat("overloaded: the queue of ",
                                                                max_queued, " requests is full")),
                      WithJitter(absl::Seconds(1)));
                },
            .submit =
                [this](CoreEvent event) {
                  if (!inbox.Push(std::move(event))) return false;
                  wakeup->Wake();
                  return true;
                },
            .tell = [this](CoreEvent event) { Tell(std::move(event)); },
            .refused = [this](const Refusal& refusal) { Count(refusal); }};
  }

  void Tell(CoreEvent event) {
    // A shutdown that waits for this event may destroy this object as soon as the event is in the
    // inbox. `alive` keeps `wakeup` alive for the call of Wake().
    const std::shared_ptr<Wakeup> alive = wakeup;
    inbox.PushAlways(std::move(event));
    alive->Wake();
  }

  // Tokens of the prompt and of the answer, about, because the prompt is not tokenised.
  static uint64_t PromptTokensAbout(const ClientRequest& request) {
    constexpr size_t kBytesPerToken = 4;  // The mean of English text.
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) return ids->size();
    const auto* text = std::get_if<std::string>(&request.prompt);
    return text == nullptr ? 0 : text->size() / kBytesPerToken;
  }
  double AnswerTokensAbout(const ClientRequest& request) const {
    const auto max = static_cast<int64_t>(request.sampling.max_tokens());
    const int64_t expected = metrics.expected_answer.value();
    return static_cast<double>(max == 0 ? expected : expected == 0 ? max : std::min(max, expected));
  }

  // Counts and logs a request that never reaches the core. Any thread.
  void Count(const Refusal& refusal) {
    using Cause = Refusal::Cause;
    const ClientRequest& request = refusal.request;
    const absl::Status& status = refusal.status;
    const ServingMode mode = request.mode == ServingMode::kUnspecified ? core_mode : request.mode;
    const bool colocated = mode == ServingMode::kColocated;
    (colocated ? metrics.colocated : metrics.disaggregated).Ended(status);
    if (refusal.cause != Cause::kNeverCame) {
      CallerMetrics::One& caller = metrics.callers.Of(refusal.caller);
      const auto answers = static_cast<uint64_t>(AnswersWanted(request));
      caller.requests.Add(answers);
      if (absl::IsResourceExhausted(status)) caller.refused.Add(answers);
    }
    if (refusal.cause == Cause::kQueue || refusal.cause == Cause::kNoMemory) ++shed_before_core;
    // Only for the full queue more workers would help.
    if (refusal.cause == Cause::kQueue) {
      const bool decode =
          colocated || metrics.decode_wait_ms.value() > metrics.prefill_wait_ms.value();
      metrics.RefusedTokens(PromptTokensAbout(request), AnswerTokensAbout(request), decode);
    }
    if (request.ttft_ms || request.tpot_ms) {
      metrics.Failed(status, 0, AnswersWanted(request));
    }
    Log(Severity::kInfo, "request_finished",
        {{kRequestId, request.request_id},
         {"code", absl::StatusCodeToString(status.code())},
         {"because", status.message()},
         {"mode", "none"}});
  }
  bool RunOnce(absl::Time now);
  void CarryOut(CoreAction action);
  // Sets the health that clients see.
  void TellHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(server_mutex);
  // Runs on the watch thread. Notes whether the loop makes progress.
  void WatchPulse(absl::Time now);
  // Waits until `reached` returns true after a turn of the event loop, but not longer than `limit`.
  bool WaitUntil(const std::function<bool()>& reached, absl::Duration limit);

  Door door;
  Inbox<CoreEvent> inbox;
  const std::shared_ptr<Wakeup> wakeup = std::make_shared<Wakeup>();  // Wakes the loop.
  Connections connections;
  RequestMetrics metrics;
  const ServingMode core_mode;
  const std::shared_ptr<ApiKeys> keys;
  InferenceService inference;
  MembershipService membership;
  WorkerLegs legs;
  RouterCore core;
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<HttpDoor> http;  // Null if there is none.
  Mutex server_mutex;
  bool server_open ABSL_GUARDED_BY(server_mutex) = true;  // True until Shutdown closes it.
  bool core_serves ABSL_GUARDED_BY(server_mutex) = false;
  std::optional<ServingChanged> logged;              // Loop thread: what the log says of the state.
  bool hangs ABSL_GUARDED_BY(server_mutex) = false;  // The loop has been silent for too long.
  std::atomic<bool> serves_http = false, works = true;  // The two above, for HTTP.
  Pulse pulse;
  std::optional<PulseWatch> watch;
  FreeMemory free_memory;
  std::unique_ptr<Loop> watch_loop;

  Mutex mutex;
  CondVar turned;
  RouterCounters counters ABSL_GUARDED_BY(mutex);
  size_t request_count ABSL_GUARDED_BY(mutex) = 0;
  size_t leg_count ABSL_GUARDED_BY(mutex) = 0;
  bool shut_down = false;
  absl::Time next_wake = absl::InfinitePast();  // Loop thread only.
  absl::Time last_turn = absl::InfinitePast();  // Loop thread only.
  std::atomic<size_t> queued = 0;               // Queued requests, as of the loop's last turn.
  std::atomic<uint64_t> shed_before_core = 0;
  // Declared last, so that the loop stops before the other members are destroyed.
  std::unique_ptr<Loop> loop;
};

bool RouterServer::Parts::RunOnce(absl::Time now) {
  if (last_turn != absl::InfinitePast() && now - last_turn > kOverslept) {
    core.Handle(Overslept{now - last_turn}, now);
  }
  last_turn = now;
  std::vector<CoreEvent> events = inbox.TakeAll();
  for (CoreEvent& event : events) {
    LegKey said = 0, ended = 0;
    AttachKey reported = 0;
    std::visit(
        [&](const auto& e) {
          using Event = std::decay_t<decltype(e)>;
          if constexpr (std::is_same_v<Event, PrefillSaid> || std::is_same_v<Event, DecodeSaid>) {
            said = e.leg;
          } else if constexpr (std::is_same_v<Event, LegEnded>) {
            ended = e.leg;
          } else if constexpr (std::is_same_v<Event, WorkerAttached> ||
                               std::is_same_v<Event, WorkerReported>) {
            reported = e.attach;
          }
        },
        event);
    core.Handle(std::move(event), now);
    for (CoreAction& action : core.TakeActions()) CarryOut(std::move(action));
    if (said != 0) legs.Taken(said);
    if (ended != 0) legs.Ended(ended);
    if (reported != 0) membership.Taken(reported);
  }
  core.RunOnce(now);
  for (CoreAction& action : core.TakeActions()) CarryOut(std::move(action));
  next_wake = core.NextWake();
  queued = core.queued();
  MutexLock lock(&mutex);
  counters = core.counters();
  request_count = core.requests();
  leg_count = core.legs();
  turned.SignalAll();
  return !events.empty();
}

void RouterServer::Parts::CarryOut(CoreAction action) {
  std::visit(
      [this](auto& a) {
        using Action = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<Action, StartPrefill> || std::is_same_v<Action, StartDecode>) {
          legs.Start(std::move(a));
        } else if constexpr (std::is_same_v<Action, CancelLeg>) {
          legs.Cancel(a.leg);
        } else if constexpr (std::is_same_v<Action, PauseLeg>) {
          legs.Pause(a.leg);
        } else if constexpr (std::is_same_v<Action, ResumeLeg>) {
          legs.Resume(a.leg);
        } else if constexpr (std::is_same_v<Action, SendToClient>) {
          if (const auto call = door.Find(a.request)) call->Send(std::move(a.event));
        } else if constexpr (std::is_same_v<Action, FinishClient>) {
          if (const auto call = door.Find(a.request)) call->End(a.status);
        } else if constexpr (std::is_same_v<Action, AbortClient>) {
          if (const auto call = door.Find(a.request)) call->Abort();
        } else if constexpr (std::is_same_v<Action, SendPeers>) {
          membership.Send(a.attach, a.peers);
        } else if constexpr (std::is_same_v<Action, ReportTaken>) {
          membership.Taken(a.attach);
        } else if constexpr (std::is_same_v<Action, CloseAttach>) {
          Log(Severity::kWarning, "attach_closed", {{"because", a.status.ToString()}});
          membership.Close(a.attach, a.status);
        } else if constexpr (std::is_same_v<Action, DropWorker>) {
          legs.DropWorker(a.worker);
        } else {
          static_assert(std::is_same_v<Action, ServingChanged>);
          // ListModels changes before health and the log line, so that a client that waits for
          // these finds the new state in ListModels.
          door.SetServing(a);
          {
            MutexLock lock(&server_mutex);
            core_serves = a.serving;
            TellHealth();
          }
          ServingChanged state = a;
          state.failing.clear();
          if (std::exchange(logged, state) == state) return;
          Log(Severity::kInfo, a.serving ? "serving" : "not_serving",
              {{"prefill_workers", a.prefill_workers},
               {"decode_workers", a.decode_workers},
               {"ready_prefill_workers", a.ready_prefill_workers},
               {"ready_decode_workers", a.ready_decode_workers},
               {"identity", a.identity.fingerprint.empty() ? "none" : a.identity.ToString()},
               {"why", a.why}});
        }
      },
      action);
}

void RouterServer::Parts::TellHealth() {
  serves_http = server_open && core_serves && !hangs;
  works = !hangs;
  if (!server_open) return;
  server->SetServing(kInference, core_serves && !hangs);
  server->SetServing("", core_serves && !hangs);
  // Kubernetes asks for this one to learn whether the process must be restarted.
  server->SetServing(kMembership, !hangs);
}

void RouterServer::Parts::WatchPulse(absl::Time now) {
  const bool silent = !watch->Silent(now).empty();
  MutexLock lock(&server_mutex);
  if (hangs == silent) return;
  hangs = silent;
  TellHealth();
  if (hangs) {
    Log(Severity::kError, "hangs", {{"threads", "router"}});
  } else {
    Log(Severity::kInfo, "hangs_no_more");
  }
}

bool RouterServer::Parts::WaitUntil(const std::function<bool()>& reached, absl::Duration limit) {
  const absl::Time until = SteadyNow() + limit;
  MutexLock lock(&mutex);
  while (!reached()) {
    const absl::Duration left = until - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    turned.WaitFor(&mutex, std::min(left, absl::Seconds(1)));
  }
  return true;
}

RouterServer::RouterServer() = default;

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(Options options) {
  auto router = std::unique_ptr<RouterServer>(new RouterServer);
  router->parts_ = std::make_unique<Parts>(options);
  Parts* parts = router->parts_.get();
  absl::StatusOr<std::unique_ptr<RpcServer>> server =
      RpcServer::Start({.listen = options.listen,
                        .services = {&parts->inference, &parts->membership},
                        .names = {kInference, kMembership},
                        .connection_age = options.connection_age,
                        .connections = &parts->connections,
                        .max_message_bytes = MaxMessageBytes(options)});
  if (!server.ok()) {
    parts->shut_down = true;
    return server.status();
  }
  parts->server = *std::move(server);
  if (!options.http.listen.empty()) {
    options.http.counts = &parts->connections.counts();
    options.http.keys = parts->keys.get();
    options.http.connection_age = options.connection_age;
    options.http.max_body_bytes = MaxMessageBytes(options);
    options.http.max_answer_bytes = options.max_open_bytes;
    options.http.serves = [parts] { return parts->serves_http.load(); };
    options.http.alive = [parts] { return parts->works.load(); };
    absl::StatusOr<std::unique_ptr<HttpDoor>> http =
        HttpDoor::Listen(&parts->door, std::move(options.http));
    if (!http.ok()) {
      parts->shut_down = true;
      parts->server->Shutdown(absl::ZeroDuration());
      return http.status();
    }
    parts->http = *std::move(http);
  }
  parts->server->SetServing(kInference, false);
  parts->server->SetServing("", false);
  parts->server->SetServing(kMembership, true);
  // The core's timers decide when the loop runs next.
  parts->loop =
      std::make_unique<Loop>(Loop::Options{.name = "router",
                                           .idle = kIdle,
                                           .next_turn = [parts] { return parts->next_wake; },
                                           .wakeup = parts->wakeup.get(),
                                           .pulse = &parts->pulse},
                             [parts](absl::Time now) { return parts->RunOnce(now); });
  parts->watch.emplace(options.hang_limit);
  parts->watch->Add("router", &parts->pulse);
  parts->watch_loop = std::make_unique<Loop>(
      Loop::Options{.name = "watch", .idle = std::min(options.hang_limit / 8, absl::Seconds(1))},
      [parts](absl::Time now) {
        parts->WatchPulse(now);
        parts->inference.EndWithoutRequests(now);
        parts->membership.EndWithoutRegistrations(now);
        parts->keys->ReadIfChanged();
        parts->free_memory.TrimIfDue(now);
        return false;
      });
  if (parts->http != nullptr) parts->http->Serve();
  return router;
}

RouterServer::~RouterServer() { Shutdown(absl::ZeroDuration()); }

const std::string& RouterServer::address() const { return parts_->server->address(); }

std::string RouterServer::http_address() const {
  return parts_->http == nullptr ? "" : parts_->http->address();
}

void RouterServer::AddHttpMetrics(MetricRegistry* registry) const {
  if (parts_->http != nullptr) parts_->http->AddTo(registry);
}

RouterCounters RouterServer::counters() const {
  MutexLock lock(&parts_->mutex);
  RouterCounters counters = parts_->counters;
  counters.shed += parts_->shed_before_core;
  return counters;
}
const RequestMetrics& RouterServer::request_metrics() const { return parts_->metrics; }
size_t RouterServer::requests() const {
  MutexLock lock(&parts_->mutex);
  return parts_->request_count;
}
size_t RouterServer::queued() const {
  MutexLock lock(&parts_->mutex);
  return std::min<size_t>(parts_->queued, parts_->request_count);
}
size_t RouterServer::legs() const {
  MutexLock lock(&parts_->mutex);
  return parts_->leg_count;
}

ConnectionCounters RouterServer::connections() const { return parts_->connections.counters(); }

SharedBudget& RouterServer::text_calls() { return parts_->door.text_calls(); }

uint64_t RouterServer::text_calls_refused() const {
  return parts_->door.text_calls_refused().value();
}

uint64_t RouterServer::tool_arguments_dropped() const {
  const ChatRenderer* const chat = parts_->door.model().chat;
  return chat == nullptr ? 0 : chat->broken_arguments().value();
}

size_t RouterServer::open_bytes() const { return parts_->door.open_bytes(); }

void RouterServer::Shutdown(absl::Duration grace) {
  Parts& p = *parts_;
  if (p.shut_down) return;
  p.shut_down = true;
  const auto idle = [&p]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const bool answers = p.http != nullptr && p.http->exchanges() > 0;
    return p.door.calls() == 0 && p.request_count == 0 && p.leg_count == 0 && !answers;
  };
  p.Tell(Drain{});
  p.WaitUntil(idle, grace);
  p.Tell(StopAll{});
  p.membership.CloseAll(absl::UnavailableError("the router is shutting down"));
  {
    MutexLock lock(&p.server_mutex);
    p.server_open = false;
    p.serves_http = false;
  }
  // Final statuses get one second to reach the clients. New calls are refused meanwhile. Then the
  // clients are told that their connections end. If gRPC alone shut down, it would end calls that
  // come at that moment with CANCELLED, which clients do not repeat.
  p.WaitUntil([&p] { return p.door.calls() == 0; }, absl::Seconds(1));
  p.connections.EndAll();
  p.server->Shutdown(absl::Seconds(1));
  if (p.http != nullptr) p.http->Shutdown(absl::Seconds(1));
  // All RPCs from clients are over. The router's RPCs to workers were cancelled and end by
  // themselves.
  p.WaitUntil(idle, absl::InfiniteDuration());
  p.watch_loop = nullptr;
  p.loop->Stop();
}

}  // namespace baton
