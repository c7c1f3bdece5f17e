#include "router/router_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "router/router_core_parts.h"

namespace baton {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// How long a prompt waits before it is offered again when every worker for it was full.
constexpr absl::Duration kFullPause = absl::Milliseconds(20);
// How many requests whose own workers are all busy one look at the queue passes over.
constexpr int kMostPassed = 1024;

// A client whose deadline passes cancels, and by its own clock that is a little before ours: gRPC
// sends the timeout rounded up to three digits (PROTOCOL-HTTP2.md, "Timeout"), and it counts here
// from arrival. What timed out must not pass for what its client no longer wanted.
absl::Status WhyGone(const Request& request, const char* cancelled, absl::Time now) {
  const CheckedRequest& checked = request.checked;
  const absl::Duration rounding = (checked.deadline - checked.arrival) / 100;
  if (now < checked.deadline - rounding - absl::Milliseconds(5)) {
    return absl::CancelledError(cancelled);
  }
  return absl::DeadlineExceededError("the deadline passed, and the client left");
}

}  // namespace

RouterCore::RouterCore(RouterCoreOptions options)
    : parts_(std::make_unique<Parts>(std::move(options))) {}
RouterCore::~RouterCore() = default;

size_t RouterCore::requests() const { return parts_->requests.size(); }
size_t RouterCore::legs() const { return parts_->legs.size(); }
size_t RouterCore::queued() const { return parts_->fresh.size() + parts_->again.size(); }
const RouterCounters& RouterCore::counters() const { return parts_->counters; }
std::vector<CoreAction> RouterCore::TakeActions() { return std::exchange(parts_->actions, {}); }

void RouterCore::Handle(CoreEvent event, absl::Time now) {
  Parts& p = *parts_;
  std::visit(Overloaded{
                 [&](ClientArrived& e) { p.ArriveAll(std::move(e), now); },
                 [&](ClientWritable& e) {
                   for (Request* request : p.RequestsOf(e.request)) {
                     request->writable = true;
                     p.Pump(*request, now);
                     p.SetTimer(*request);
                   }
                 },
                 [&](ClientCancelled& e) {
                   for (Request* request : p.RequestsOf(e.request)) {
                     if (request->stage == Request::Stage::kFinished) continue;
                     p.FinishError(*request, WhyGone(*request, "the client cancelled", now), now);
                   }
                 },
                 [&](ClientGone& e) {
                   for (Request* request : p.RequestsOf(e.request)) {
                     if (request->stage != Request::Stage::kFinished) {
                       p.FinishError(*request, WhyGone(*request, "the client is gone", now), now);
                     }
                     p.timers.erase({request->timer, request->key});
                     p.Unbind(*request);
                     p.requests.erase(request->key);
                   }
                   p.groups.erase(e.request);
                 },
                 [&](PrefillSaid& e) {
                   Leg* leg = p.FindLeg(e.leg);
                   if (leg == nullptr || leg->request == 0) return;
                   BATON_CHECK(leg->prefill) << "leg " << e.leg << " is a decode leg";
                   p.OnPrefill(*leg, std::move(e.event), now);
                 },
                 [&](DecodeSaid& e) {
                   Leg* leg = p.FindLeg(e.leg);
                   if (leg == nullptr || leg->request == 0) return;
                   BATON_CHECK(!leg->prefill) << "leg " << e.leg << " is a prefill leg";
                   p.OnDecode(*leg, std::move(e.event), now);
                 },
                 [&](LegEnded& e) {
                   Leg* leg = p.FindLeg(e.leg);
                   BATON_CHECK(leg != nullptr) << "leg " << e.leg << " ended twice";
                   if (leg->request != 0) p.LegFailed(*leg, std::move(e.status), true, now);
                   p.legs.erase(e.leg);
                 },
                 [&](WorkerAttached& e) { p.AttachWorker(std::move(e), now); },
                 [&](WorkerReported& e) {
                   bool matters = false;
                   if (p.workers.Report(e.attach, e.load, now, &matters) == nullptr) return;
                   if (matters) p.WorkersChanged(now);
                   p.dispatch_due = true;
                 },
                 [&](WorkerDetached& e) {
                   if (p.workers.Detach(e.attach, now) == nullptr) return;
                   p.forget_at = std::min(p.forget_at, now + p.options.forget_after);
                   p.peers_due = true;
                   p.WorkersChanged(now);
                 },
                 [&](Overslept& e) {
                   p.workers.Excuse(e.by, now);
                   p.served.Excuse(e.by, now);
                   for (auto& [key, leg] : p.legs) leg.heard = std::min(now, leg.heard + e.by);
                   for (auto& [key, request] : p.requests) p.SetTimer(request);
                   p.WorkersChanged(now);
                 },
                 [&](Drain&) {
                   p.draining = true;
                   p.serving_due = true;
                 },
                 [&](StopAll&) {
                   p.draining = true;
                   p.serving_due = true;
                   for (auto& [key, request] : p.requests) {
                     if (request.stage == Request::Stage::kFinished) continue;
                     std::string message = "the router is going away";
                     if (request.no_pair_since) {
                       absl::StrAppend(&message, "; ", p.MissingFor(request, now));
                     }
                     p.FinishError(request, absl::UnavailableError(message), now);
                   }
                 },
             },
             event);
  p.EndGroups(now);
}

void RouterCore::RunOnce(absl::Time now) {
  Parts& p = *parts_;
  if (now >= p.stale_at || now >= p.served.ChangesAt()) p.WorkersChanged(now);
  while (!p.timers.empty() && p.timers.begin()->first <= now) {
    Request& request = p.requests.at(p.timers.begin()->second);
    p.CheckTimers(request, now);
    p.SetTimer(request);
    // A timer that stays due would spin here; the next microsecond is soon enough.
    if (request.timer <= now) {
      p.timers.erase({request.timer, request.key});
      request.timer = now + absl::Microseconds(1);
      p.timers.insert({request.timer, request.key});
    }
  }
  if (now >= p.forget_at) {
    p.forget_at = absl::InfiniteFuture();
    for (const WorkerKey key : p.workers.Forget(now, p.options.forget_after)) {
      p.actions.push_back(DropWorker{key});
      p.peers_due = true;
      p.serving_due = true;
    }
    p.forget_at = p.workers.ForgetAt(p.options.forget_after);
  }
  if (p.dispatch_due || now >= p.dispatch_at) p.Dispatch(now);
  p.EndGroups(now);
  if (p.peers_due) {
    p.peers_due = false;
    const bool pairs_wanted = p.options.mode != v1::SERVING_MODE_COLOCATED;
    for (auto& [attach, peers] : p.workers.ChangedPeers(pairs_wanted)) {
      p.actions.push_back(SendPeers{attach, std::move(peers)});
    }
  }
  if (p.serving_due) {
    p.serving_due = false;
    p.workers.CountStates(p.served.served(), p.options.mode, now, p.metrics);
    ServingChanged serving = p.Serving(now);
    p.WatchUnused(serving, now);
    if (!p.serving || !(*p.serving == serving)) {
      p.serving = serving;
      p.actions.push_back(std::move(serving));
    }
  }
  if (now >= p.warn_at) p.WarnOfUnused(now);
}

absl::Time RouterCore::NextWake() const {
  const Parts& p = *parts_;
  if (p.dispatch_due || p.peers_due || p.serving_due) return absl::InfinitePast();
  absl::Time wake =
      std::min({p.stale_at, p.forget_at, p.dispatch_at, p.warn_at, p.served.ChangesAt()});
  if (!p.timers.empty()) wake = std::min(wake, p.timers.begin()->first);
  return wake;
}

void RouterCore::Parts::AttachWorker(WorkerAttached event, absl::Time now) {
  std::vector<WorkerKey> replaced;
  std::vector<AttachKey> closed;
  const absl::StatusOr<Worker*> worker =
      workers.Attach(event.attach, event.registration, options.model_name, now, &replaced, &closed);
  if (!worker.ok()) {
    actions.push_back(CloseAttach{event.attach, worker.status()});
    return;
  }
  for (const AttachKey attach : closed) {
    actions.push_back(CloseAttach{
        attach,
        absl::AbortedError(absl::StrCat("a newer stream attached ", (*worker)->name.address))});
  }
  if (!replaced.empty()) forget_at = now;
  if (const std::string why = workers.WithoutPartner(**worker); !why.empty()) {
    Log(Severity::kWarning, "worker_without_partner",
        {{"worker", (*worker)->name.address}, {"why", why}});
  }
  WorkersChanged(now);
  if ((*worker)->identity != served.served()) {
    Log(Severity::kWarning, "worker_of_other_identity",
        {{"worker", (*worker)->name.address},
         {"identity", (*worker)->identity.ToString()},
         {"served", served.served() ? served.served()->ToString() : served.fixed().ToString()}});
  }
  // Collected first: a failed leg changes the table that is walked.
  std::vector<LegKey> dead;
  for (const auto& [key, leg] : legs) {
    if (leg.request != 0 &&
        std::find(replaced.begin(), replaced.end(), leg.worker) != replaced.end()) {
      dead.push_back(key);
    }
  }
  for (const LegKey key : dead) {
    Leg* leg = FindLeg(key);
    if (leg == nullptr || leg->request == 0) continue;
    LegFailed(
        *leg,
        absl::UnavailableError(absl::StrCat("worker ", (*worker)->name.address,
                                            " was started anew: its earlier process is gone")),
        false, now);
  }
}

void RouterCore::Parts::WorkersChanged(absl::Time now) {
  workers.RefreshPairs(now);
  ChooseIdentity(now);
  stale_at = workers.StaleAt(now);
  peers_due = true;
  serving_due = true;
  dispatch_due = true;
  NotePairs(now);
  RoomFreed(now);
}

v1::ServingMode RouterCore::Parts::ModeOf(const Request& request) const {
  const v1::ServingMode mode = request.checked.mode;
  return mode == v1::SERVING_MODE_UNSPECIFIED ? options.mode : mode;
}

int64_t RouterCore::Parts::CapacityFor(const Request& request) const {
  const IdentityWorkers& all = workers.WorkersOf(IdentityFor(request));
  return ModeOf(request) == v1::SERVING_MODE_DISAGGREGATED ? all.pair_capacity_tokens
                                                           : all.decode_capacity_tokens;
}

bool RouterCore::Parts::Servable(const Request& request) const {
  const IdentityWorkers& all = workers.WorkersOf(IdentityFor(request));
  return (ModeOf(request) == v1::SERVING_MODE_DISAGGREGATED ? all.pairs : all.ready_decode) > 0;
}

std::string RouterCore::Parts::MissingFor(const Request& request, absl::Time now) const {
  return Missing(NeedOf(request, 0), ModeOf(request) == v1::SERVING_MODE_DISAGGREGATED,
                 request.identity.has_value(), now);
}

ServingChanged RouterCore::Parts::Serving(absl::Time now) const {
  const IdentityWorkers& all = workers.WorkersOf(served.served());
  const bool pairs = options.mode == v1::SERVING_MODE_DISAGGREGATED;
  ServingChanged serving;
  serving.serving = !draining && (pairs ? all.pairs : all.ready_decode) > 0;
  if (served.served()) serving.identity = *served.served();
  serving.prefill_workers = static_cast<uint32_t>(all.paired_prefill);
  serving.decode_workers = static_cast<uint32_t>(pairs ? all.paired_decode : all.ready_decode);
  for (const auto& [identity, of_it] : workers.identities()) {
    serving.ready_prefill_workers += static_cast<uint32_t>(of_it.ready_prefill);
    serving.ready_decode_workers += static_cast<uint32_t>(of_it.ready_decode);
  }
  serving.context_tokens =
      static_cast<int>(pairs ? all.pair_capacity_tokens : all.decode_capacity_tokens);
  serving.why.clear();
  if (serving.serving) {
    serving.unused = workers.Unused(served.served(), options.mode, now);
  } else if (draining) {
    serving.why = "the router is draining: it takes no new requests";
  } else {
    serving.why = Missing({.tokens = 1, .identity = served.served()}, pairs, /*begun=*/false, now);
  }
  return serving;
}

// The wait for workers counts only while there are none.
void RouterCore::Parts::NotePairs(absl::Time now) {
  std::set<ModelIdentity> pairs, decode;
  for (const auto& [identity, all] : workers.identities()) {
    if (all.pairs > 0) pairs.insert(identity);
    if (all.ready_decode > 0) decode.insert(identity);
  }
  if (served.served() == noted_served && pairs == noted_pairs && decode == noted_decode) return;
  noted_served = served.served();
  noted_pairs = std::move(pairs);
  noted_decode = std::move(decode);
  for (const auto* queue : {&fresh, &again}) {
    for (const RequestKey key : *queue) {
      Request& request = requests.at(key);
      if (Servable(request)) {
        request.no_pair_since.reset();
      } else if (!request.no_pair_since) {
        request.no_pair_since = now;
      }
      SetTimer(request);
    }
  }
}

void RouterCore::Parts::Arrive(ClientArrived event, absl::Time now) {
  BATON_CHECK(event.request != 0 && requests.count(event.request) == 0)
      << "request key " << event.request;
  BATON_CHECK(!event.checked.prompt.empty()) << "an empty prompt";
  ++counters.arrived;
  std::optional<TextDecoder> decoder;
  if (options.new_decoder) decoder = options.new_decoder();
  AnswerSoFar answer(event.checked.prompt.size(), event.checked.sampling, event.checked.stop,
                     std::move(decoder), options.vocab);
  Request& request = requests
                         .emplace(std::piecewise_construct, std::forward_as_tuple(event.request),
                                  std::forward_as_tuple(event.request, std::move(event.checked),
                                                        std::move(answer)))
                         .first->second;
  request.enqueued = request.checked.arrival;
  request.asked_max_tokens = request.checked.sampling.max_tokens;
  if (draining) {
    FinishError(request, absl::UnavailableError("the router is draining: it takes no new requests"),
                now);
    return;
  }
  if (CapacityFor(request) > 0 && !Size(request, now)) return;
  if (static_cast<int>(fresh.size()) + request.checked.answers > options.max_queued) {
    ++counters.shed;
    FinishError(request,
                absl::ResourceExhaustedError(
                    absl::StrCat("the queue of ", options.max_queued, " requests ",
                                 request.checked.answers == 1
                                     ? std::string("is full")
                                     : absl::StrCat("holds ", fresh.size(), " and this one wants ",
                                                    request.checked.answers, " answers"),
                                 "; ", requests.size() - fresh.size() - 1, " more are running")),
                now);
    return;
  }
  metrics->prompt_tokens.Add(request.checked.prompt.size());
  if (request.checked.sampling.answer_index > 0) {
    Enqueue(request, false, now);
    return;
  }
  v1::GenerateEvent accepted;
  accepted.mutable_accepted()->set_request_id(request.checked.request_id);
  accepted.mutable_accepted()->set_model(options.model_name);
  accepted.mutable_accepted()->set_prompt_tokens(
      static_cast<uint32_t>(request.checked.prompt.size()));
  Send(request, std::move(accepted));
  Enqueue(request, false, now);
}

// Decides max_tokens and checks the sum against what the workers can hold. False when that ended
// the request.
bool RouterCore::Parts::Size(Request& request, absl::Time now) {
  const int64_t limit = options.context_tokens > 0
                            ? std::min<int64_t>(options.context_tokens, CapacityFor(request))
                            : CapacityFor(request);
  SamplingOptions& sampling = request.checked.sampling;
  const int64_t prompt = static_cast<int64_t>(request.checked.prompt.size());
  const int64_t answer = std::max(1, sampling.max_tokens);
  if (prompt + answer > limit) {
    FinishError(request,
                absl::InvalidArgumentError(
                    absl::StrCat("prompt of ", prompt, " tokens and max_tokens ", answer, " make ",
                                 prompt + answer, "; the workers take ", limit, " tokens")),
                now);
    return false;
  }
  if (sampling.max_tokens == 0) sampling.max_tokens = static_cast<int>(limit - prompt);
  if (sampling.min_tokens > sampling.max_tokens) {
    FinishError(request,
                absl::InvalidArgumentError(absl::StrCat("min_tokens is ", sampling.min_tokens,
                                                        "; the context leaves ",
                                                        sampling.max_tokens, " for the answer")),
                now);
    return false;
  }
  request.sized = true;
  return true;
}

void RouterCore::Parts::Enqueue(Request& request, bool front, absl::Time now) {
  request.stage = Request::Stage::kQueued;
  ++queued_of_mode[ModeOf(request)];
  if (!request.tried) {
    fresh.push_back(request.key);
  } else if (front) {
    again.push_front(request.key);
  } else {
    again.push_back(request.key);
  }
  if (!Servable(request) && !request.no_pair_since) request.no_pair_since = now;
  dispatch_due = true;
  SetTimer(request);
}

void RouterCore::Parts::Dequeue(Request& request) {
  const size_t removed = fresh.remove(request.key) + again.remove(request.key);
  queued_of_mode[ModeOf(request)] -= static_cast<int>(removed);
}

// No first token may be followed by a wait for room: while a ticket waits, nothing new is begun
// that might want the same.
std::set<WorkerKey> RouterCore::Parts::Awaited(absl::Time now) {
  std::map<WorkerKey, Need> least;  // by prefill worker
  for (const RequestKey key : waiting_room) {
    const Request& request = requests.at(key);
    const Need need = NeedOf(request, 0);
    const auto [found, added] = least.try_emplace(request.prefill_worker, need);
    if (!added && need.tokens < found->second.tokens) found->second = need;
  }
  std::set<WorkerKey> awaited;
  for (const auto& [key, need] : least) {
    const Worker* prefill = workers.Find(key);
    if (prefill == nullptr) continue;
    for (const Worker* decode : workers.PartnersFor(*prefill, need, now)) {
      awaited.insert(decode->name.key);
    }
  }
  return awaited;
}

// Hands waiting requests to workers, oldest first. Who is passed over is passed by requests that go
// where it can't go: every place is offered to the oldest request that can use it, so nobody
// starves.
void RouterCore::Parts::Dispatch(absl::Time now) {
  dispatch_due = false;
  dispatch_at = absl::InfiniteFuture();
  if (noted_decode.empty()) return;
  std::set<ModelIdentity> identities;
  if (served.served()) identities.insert(*served.served());
  for (const auto& [identity, requests_of_it] : bound) identities.insert(identity);
  Ways ways(options, &workers, Awaited(now), std::move(identities), now);
  int passed = 0;
  for (auto* queue : {&again, &fresh}) {
    for (auto it = queue->begin(); it != queue->end();) {
      Request& request = requests.at(*it);
      if (request.not_before > now || !Servable(request)) {
        ++it;
        continue;
      }
      if (!request.sized) {
        const auto here = it++;
        if (!Size(request, now)) continue;  // it left the queue
        it = here;
      }
      const size_t tokens = request.checked.prompt.size() + request.answer.tokens().size();
      const Ways::Found found = ways.Find(ModeOf(request), tokens, NeedOf(request, 0),
                                          request.avoid_prefill, request.avoid_decode);
      if (found.choice == WorkerTable::Choice::kBusy) {
        request.no_pair_since.reset();
        dispatch_at = now + kFullPause;
        if (++passed > kMostPassed || ways.Closed(queued_of_mode)) return;
        ++it;
        continue;
      }
      if (found.choice == WorkerTable::Choice::kNone) {
        if (!request.no_pair_since) {
          request.no_pair_since = now;
          SetTimer(request);
        }
        ++it;
        continue;
      }
      request.no_pair_since.reset();
      it = queue->erase(it);
      --queued_of_mode[ModeOf(request)];
      request.tried = true;
      if (found.colocated) {
        OpenColocated(request, *found.worker, now);
      } else {
        OpenPrefill(request, *found.worker, now);
      }
      SetTimer(request);
    }
  }
}

void RouterCore::Parts::SetTimer(Request& request) {
  absl::Time wake = absl::InfiniteFuture();
  if (request.stage == Request::Stage::kFinished) {
    if (!request.aborted) wake = request.finished + request.leave_limit;
  } else {
    wake = request.checked.deadline;
    if (request.slow_since) wake = std::min(wake, *request.slow_since + options.slow_client_limit);
    if (request.stage == Request::Stage::kQueued) {
      if (request.not_before > request.enqueued) wake = std::min(wake, request.not_before);
      if (request.no_pair_since) wake = std::min(wake, *request.no_pair_since + options.pair_wait);
      if (request.refused_since) wake = std::min(wake, *request.refused_since + options.room_wait);
    }
    if (request.room_since) {
      wake = std::min({wake, request.room_retry, *request.room_since + options.room_wait});
    }
    for (const LegKey key : {request.prefill_leg, request.decode_leg}) {
      const Leg* leg = key == 0 ? nullptr : FindLeg(key);
      if (leg == nullptr || leg->paused) continue;
      absl::Time check = leg->heard + options.stall_limit;
      if (const Worker* worker = workers.Find(leg->worker)) {
        check = std::max(check, worker->reported + options.report_limit + absl::Nanoseconds(1));
      }
      wake = std::min(wake, check);
    }
  }
  if (wake == request.timer) return;
  if (request.timer != absl::InfiniteFuture()) timers.erase({request.timer, request.key});
  request.timer = wake;
  if (wake != absl::InfiniteFuture()) timers.insert({wake, request.key});
}

void RouterCore::Parts::CheckTimers(Request& request, absl::Time now) {
  if (request.stage == Request::Stage::kFinished) {
    if (!request.aborted && now >= request.finished + request.leave_limit) {
      request.aborted = true;
      AbortClientOf(request);
    }
    return;
  }
  if (now >= request.checked.deadline) {
    std::string message =
        absl::StrCat("the deadline passed ", absl::FormatDuration(now - request.checked.arrival),
                     " after arrival, with ", request.answer.tokens().size(), " tokens generated");
    if (request.stage == Request::Stage::kQueued && request.no_pair_since) {
      absl::StrAppend(&message, "; ", MissingFor(request, now));
    }
    FinishError(request, absl::DeadlineExceededError(message), now);
    return;
  }
  if (request.slow_since && now >= *request.slow_since + options.slow_client_limit) {
    metrics->slow_clients.Add();
    FinishError(request,
                absl::ResourceExhaustedError(absl::StrCat(
                    "the client read too slowly: ", WaitingTokens(request), " tokens waited for ",
                    absl::FormatDuration(now - *request.slow_since))),
                now);
    return;
  }
  if (request.stage == Request::Stage::kQueued) {
    if (request.no_pair_since && now >= *request.no_pair_since + options.pair_wait) {
      std::string message = absl::StrCat(MissingFor(request, now), "; waited ",
                                         absl::FormatDuration(now - *request.no_pair_since));
      if (!request.last_failure.ok()) {
        absl::StrAppend(&message, "; before that: ", request.last_failure.message());
      }
      FinishError(request, absl::UnavailableError(message), now);
    } else if (request.refused_since && now >= *request.refused_since + options.room_wait) {
      FinishError(request,
                  absl::ResourceExhaustedError(
                      absl::StrCat("every worker for its prompt was full for ",
                                   absl::FormatDuration(now - *request.refused_since),
                                   "; the last one said: ", request.last_failure.message())),
                  now);
    } else if (request.not_before <= now) {
      request.not_before = absl::InfinitePast();
      dispatch_due = true;
    }
    return;
  }
  for (const LegKey key : {request.prefill_leg, request.decode_leg}) {
    Leg* leg = key == 0 ? nullptr : FindLeg(key);
    if (leg == nullptr || leg->request == 0 || leg->paused) continue;
    const Worker* worker = workers.Find(leg->worker);
    if (now < leg->heard + options.stall_limit ||
        (worker != nullptr && !workers.Stale(*worker, now))) {
      continue;
    }
    LegFailed(*leg,
              absl::UnavailableError(
                  absl::StrCat("worker ", worker == nullptr ? "" : worker->name.address,
                               " was silent for ", absl::FormatDuration(now - leg->heard))),
              false, now);
    if (request.stage != Request::Stage::kRunning) return;
  }
  if (request.room_since && now >= *request.room_since + options.room_wait) {
    FinishError(request,
                absl::ResourceExhaustedError(
                    absl::StrCat("no decode worker had room for ", NeedOf(request, 0).tokens,
                                 " tokens in ", absl::FormatDuration(now - *request.room_since))),
                now);
  } else if (request.room_since && now >= request.room_retry) {
    request.room_retry = absl::InfiniteFuture();
    TryDecode(request, now);
  }
}

}  // namespace baton
