#include "router/core/router_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/overloaded.h"
#include "router/core/admission.h"
#include "router/core/attempt.h"
#include "router/core/clients.h"
#include "router/core/legs.h"
#include "router/core/membership.h"
#include "router/core/request_queue.h"
#include "router/core/retry_budget.h"

namespace baton {
namespace {

// Returns the pause before the next attempt. The attempt after the first broken one begins without
// a pause. The pauses of a request that keeps failing grow, up to a limit.
absl::Duration PauseBefore(int migration) {
  if (migration <= 1) return absl::ZeroDuration();
  return std::min(absl::Milliseconds(10) * (1 << std::min(migration - 2, 6)),
                  absl::Milliseconds(500));
}

// Time after the end of an RPC to a worker within which the worker's Attach stream ends too, if its
// process has died.
constexpr absl::Duration kDeathNotice = absl::Milliseconds(250);

// An RPC to a worker ends at its request's deadline, by the worker's clock or by ours.
constexpr absl::Duration kAtDeadline = absl::Milliseconds(100);

// Returns true if an attempt that ended like this counts against its worker.
bool IsFault(const AttemptEnd& end, absl::Time deadline, absl::Time now) {
  switch (end.status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kAborted:          // the worker has died, and another has its address
    case absl::StatusCode::kInvalidArgument:  // NoteSuccess counts it, if it was wrong
    case absl::StatusCode::kResourceExhausted:
      return false;
    case absl::StatusCode::kDeadlineExceeded:
      // If KV moves too slowly, it is unclear whose fault it is.
      return !end.in_transit && now < deadline - kAtDeadline;
    case absl::StatusCode::kFailedPrecondition:
      // If the lease on KV has run out, it is unclear whose fault it is.
      return !end.in_transit && end.kind != AttemptEnd::Kind::kOutgrown;
    default:
      return true;
  }
}

// Returns the status of a request whose client has left. A client also leaves when its deadline
// passes. This is a little before the router's deadline, because gRPC rounds the timeout up to
// three digits (PROTOCOL-HTTP2.md, "Timeout") and the router counts the timeout from the arrival of
// the request. Such a request has timed out and must not be reported as cancelled.
absl::Status WhyGone(const Request& request, const char* cancelled, absl::Time now) {
  const CheckedRequest& checked = request.checked;
  const absl::Duration rounding = (checked.deadline - checked.arrival) / 100;
  if (now < checked.deadline - rounding - absl::Milliseconds(5)) {
    return absl::CancelledError(cancelled);
  }
  return absl::DeadlineExceededError("the deadline passed, and the client left");
}

}  // namespace

// Passes each event to the part of the core that it concerns. Decides what follows when a request
// arrives, a timer is due, or an attempt has ended. All state is in its members.
class RouterCore::Impl {
 public:
  explicit Impl(RouterCoreOptions options)
      : core(std::move(options)),
        membership(&core),
        queue(&core, &membership),
        admission(&core, &membership, &queue),
        clients(&core) {}

  void Handle(CoreEvent event, absl::Time now);
  void RunOnce(absl::Time now);

  CoreContext core;
  Membership membership;
  RequestQueue queue;
  Admission admission;
  Legs legs{&core, &membership, &queue};
  Clients clients;

 private:
  // Adds a client and admits its requests.
  void Arrive(ClientArrived event);
  void Admit(Request& request);
  // Makes sure that `answers` more requests fit into the queue. If it is full, refuses the newest
  // request of the caller with the most requests in it, provided that this caller has more than the
  // caller of `request` will have. Returns OK, or the error with which `request` is refused.
  absl::Status MakePlaces(const Request& request, int answers);
  void AttachWorker(const WorkerAttached& event);
  void WorkersChanged();
  // Starts queued requests on the workers that the queue chooses for them.
  void Dispatch();
  void CheckTimers(Request& request);
  void FailLeg(Leg& leg, absl::Status status, bool ended);

  // Handles the end of the request's attempt. A null `end` means that the attempt goes on.
  void AfterEvent(Request& request, Attempt::End end);
  // Destroys the attempt after a worker was lost, or after the sequence became too long for the
  // rotary table of its KV. The request goes back to the queue with the tokens so far, or ends.
  void Restart(Request& request, const AttemptEnd& end);
  // Counts an attempt that a living worker broke. Returns how the request ends if it may not be
  // tried again.
  std::optional<GivesUp> CountBroken(Request& request);
  // Returns true if one of the workers has died. 0 stands for none.
  bool AnyDied(const std::array<WorkerKey, 2>& keys) const;
  // Returns true if one of the request's suspects has died. Then the attempt that it broke does not
  // count.
  bool Absolve(Request& request);
  // Tries requests again that would end now if their worker had not died.
  void StopSuspecting();
  // Count how workers have served the request, and eject a worker that fails too often.
  void NoteFailure(Request& request, const AttemptEnd& end);
  void NoteFailureOf(WorkerKey worker, LegKey leg, const absl::Status& status);
  void NoteSuccess(const Request& request);
  // Called after a message of the decode worker: ends long probes of the attempt's workers.
  void NoteProgress(const Attempt& attempt);
  void NoteInUseAgain(const Worker& worker);
  void Answer(Request& request, const AnswerEnd& end);
  // Fails the request in any state. Does nothing if the request has finished.
  void Fail(Request& request, absl::Status status);
  // Looks for clients whose request for several answers failed for one answer, and fails the other
  // answers.
  void FailOthers();

  const AttemptTools tools_{core, membership, legs, clients};
  RetryBudget retries_;
};

RouterCore::RouterCore(RouterCoreOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
RouterCore::~RouterCore() = default;

size_t RouterCore::requests() const { return impl_->clients.size(); }
size_t RouterCore::legs() const { return impl_->legs.size(); }
size_t RouterCore::queued() const { return impl_->queue.size(); }
const RouterCounters& RouterCore::counters() const { return impl_->core.counters; }
std::map<std::string, int> RouterCore::KeepersOf(absl::Span<const BlockName> prompt) {
  std::map<std::string, int> keepers;
  for (const HeldBlocks& held : impl_->membership.caches().Find(prompt)) {
    const Worker* worker = impl_->membership.workers().Find(held.worker);
    if (worker != nullptr) keepers[worker->name.address] = held.blocks;
  }
  return keepers;
}
std::vector<CoreAction> RouterCore::TakeActions() { return std::exchange(impl_->core.actions, {}); }
void RouterCore::Handle(CoreEvent event, absl::Time now) { impl_->Handle(std::move(event), now); }
void RouterCore::RunOnce(absl::Time now) { impl_->RunOnce(now); }
absl::Time RouterCore::NextWake() const {
  return std::min({impl_->membership.NextWake(), impl_->queue.NextWake(), impl_->core.timers.next(),
                   impl_->membership.caches().NextWake()});
}

void RouterCore::Impl::Handle(CoreEvent event, absl::Time now) {
  core.now = now;
  std::visit(Overloaded{
                 [&](ClientArrived& e) { Arrive(std::move(e)); },
                 [&](ClientWritable& e) {
                   for (Request* request : clients.RequestsOf(e.request)) {
                     request->client.writable = true;
                     if (request->attempt) {
                       request->attempt->FlushClient();
                     } else {
                       clients.Flush(*request);
                     }
                     core.timers.Update(*request);
                   }
                 },
                 [&](ClientCancelled& e) {
                   for (Request* request : clients.RequestsOf(e.request)) {
                     Fail(*request, WhyGone(*request, "the client cancelled", core.now));
                   }
                 },
                 [&](ClientGone& e) {
                   for (Request* request : clients.RequestsOf(e.request)) {
                     Fail(*request, WhyGone(*request, "the client disconnected", core.now));
                   }
                   clients.Remove(e.request);
                 },
                 [&](PrefillSaid& e) {
                   Leg* leg = legs.Find(e.leg);
                   if (leg == nullptr || leg->request == nullptr) return;
                   BATON_CHECK(leg->prefill) << "leg " << e.leg << " is a decode leg";
                   Request& request = *leg->request;
                   AfterEvent(request, request.attempt->OnPrefill(std::move(e.event)));
                 },
                 [&](DecodeSaid& e) {
                   Leg* leg = legs.Find(e.leg);
                   if (leg == nullptr || leg->request == nullptr) return;
                   BATON_CHECK(!leg->prefill) << "leg " << e.leg << " is a prefill leg";
                   Request& request = *leg->request;
                   AfterEvent(request, request.attempt->OnDecode(std::move(e.event)));
                   if (request.attempt) NoteProgress(*request.attempt);
                 },
                 [&](LegEnded& e) {
                   Leg* leg = legs.Find(e.leg);
                   BATON_CHECK(leg != nullptr) << "leg " << e.leg << " ended twice";
                   if (leg->request != nullptr) FailLeg(*leg, std::move(e.status), true);
                   legs.Ended(e.leg);
                 },
                 [&](WorkerAttached& e) { AttachWorker(e); },
                 [&](WorkerReported& e) {
                   bool matters = false;
                   Worker* const worker =
                       membership.workers().Report(e.attach, e.load, core.now, &matters);
                   if (worker == nullptr) return;
                   if (matters) WorkersChanged();
                   if (std::exchange(worker->doubted, false)) {
                     NoteFailureOf(worker->name.key, 0,
                                   absl::AbortedError("lives, but another process answered at its "
                                                      "address"));
                   }
                   queue.LookAgain();
                 },
                 [&](WorkerCached& e) { membership.Cached(std::move(e)); },
                 [&](WorkerDetached& e) {
                   if (!membership.Detach(e.attach)) return;
                   WorkersChanged();
                   StopSuspecting();
                 },
                 [&](Overslept& e) {
                   membership.Excuse(e.by);
                   legs.Excuse(e.by);
                   for (auto& [key, request] : clients.all()) core.timers.Update(request);
                   WorkersChanged();
                 },
                 [&](Drain&) { membership.Drain(); },
                 [&](StopAll&) {
                   membership.Drain();
                   for (auto& [key, request] : clients.all()) {
                     std::string message = "the router is shutting down";
                     if (!request.attempt && request.queue.no_workers_since) {
                       absl::StrAppend(&message, "; ", membership.MissingFor(request));
                     }
                     Fail(request, absl::UnavailableError(message));
                   }
                   legs.CancelForgetting();
                 },
             },
             event);
  FailOthers();
}

void RouterCore::Impl::RunOnce(absl::Time now) {
  core.now = now;
  membership.caches().RunOnce();
  if (membership.RefreshDue()) WorkersChanged();
  while (Request* request = core.timers.Due(core.now)) {
    CheckTimers(*request);
    core.timers.Update(*request);
    // A timer that stays due would make this loop endless. It is enough to check it again a
    // microsecond later.
    if (request->timer <= core.now) core.timers.Set(*request, core.now + absl::Microseconds(1));
  }
  membership.Forget();
  if (queue.RoundDue()) Dispatch();
  FailOthers();
  membership.Tell(queue.size());
}

void RouterCore::Impl::Arrive(ClientArrived event) {
  CheckedRequest& checked = event.checked;
  if (checked.mode == ServingMode::kUnspecified) checked.mode = core.options.mode;
  const int answers = checked.answers;
  const auto shared = std::make_shared<const CheckedRequest>(std::move(checked));
  clients.Open(event.request, answers);
  for (int index = 0; index < answers && !clients.Failed(event.request); ++index) {
    Admit(clients.Add(event.request, index, shared));
  }
}

void RouterCore::Impl::Admit(Request& request) {
  ++core.counters.arrived;
  // The first answer asks for places in the queue for all answers.
  const int answers = request.answer_index == 0 ? request.checked.answers : 1;
  absl::Status refusal;
  if (membership.draining()) {
    refusal = absl::UnavailableError("the router is draining: it takes no new requests");
  } else if (membership.CapacityFor(request) > 0) {
    refusal = queue.Size(request);
  }
  if (refusal.ok()) {
    if (request.answer_index == 0) refusal = admission.CallerLimitsOf(request, answers);
    if (refusal.ok()) refusal = admission.OnArrival(request);
    if (refusal.ok()) refusal = MakePlaces(request, answers);
  }
  if (!refusal.ok()) {
    Fail(request, std::move(refusal));
    return;
  }
  clients.Accept(request);
  queue.Add(request, /*front=*/false);
  core.timers.Update(request);
}

absl::Status RouterCore::Impl::MakePlaces(const Request& request, int answers) {
  while (static_cast<int>(queue.fresh()) + answers > core.options.max_queued) {
    const auto busiest = std::max_element(
        queue.callers().begin(), queue.callers().end(),
        [](const Caller* a, const Caller* b) { return a->waiting.size() < b->waiting.size(); });
    std::list<Request*>* const waiting =
        busiest == queue.callers().end() ? nullptr : &(*busiest)->waiting;
    const bool has_more = waiting != nullptr && waiting->size() > request.caller->waiting.size() +
                                                                      static_cast<size_t>(answers);
    const auto newest = has_more ? std::find_if(waiting->rbegin(), waiting->rend(),
                                                [](const Request* one) { return !one->begun(); })
                                 : std::list<Request*>::reverse_iterator();
    if (!has_more || newest == waiting->rend()) {
      return admission.QueueFull(
          request,
          absl::StrCat("the queue of ", core.options.max_queued, " requests ",
                       answers == 1 ? std::string("is full")
                                    : absl::StrCat("holds ", queue.fresh(),
                                                   " and this request wants ", answers, " answers"),
                       "; ", clients.size() - queue.fresh() - 1, " more are running"));
    }
    Fail(**newest, admission.QueueFull(
                       **newest, "the queue is full, and its caller has the most requests in it"));
  }
  return absl::OkStatus();
}

void RouterCore::Impl::AttachWorker(const WorkerAttached& event) {
  std::vector<WorkerKey> replaced;
  const Worker* worker = membership.Attach(event, &replaced);
  if (worker == nullptr) return;
  WorkersChanged();
  membership.WarnOfIdentity(*worker);
  if (!replaced.empty()) StopSuspecting();
  for (const LegKey key : legs.ListeningTo(replaced)) {
    Leg* leg = legs.Find(key);
    // An earlier failure in this loop may have closed this leg (one RPC to a worker).
    if (leg == nullptr || leg->request == nullptr) continue;
    FailLeg(*leg,
            absl::UnavailableError(absl::StrCat("worker ", worker->name.address,
                                                " has restarted: its earlier process has ended")),
            false);
  }
}

void RouterCore::Impl::WorkersChanged() {
  if (membership.Refresh()) queue.ForgetSizes();
  queue.LookAgain();
  queue.NoteWorkers();
  legs.RoomFreed();
}

void RouterCore::Impl::Dispatch() {
  queue.RunRound(
      legs.Awaited(), clients.bound(),
      [this](Request& request, const absl::StatusOr<Placement>& place) {
        if (!place.ok()) return Fail(request, place.status());
        if (absl::Status late = request.begun() ? absl::OkStatus() : admission.OnTurn(request);
            !late.ok()) {
          return Fail(request, std::move(late));
        }
        retries_.Began(core.now);
        clients.Bind(request, place->worker->identity);
        request.tried = true;
        request.attempt = std::make_unique<Attempt>(tools_, &request, *place);
        core.timers.Update(request);
      });
  admission.NoteRound(!legs.Awaited().empty());
}

void RouterCore::Impl::FailLeg(Leg& leg, absl::Status status, bool ended) {
  Request& request = *leg.request;
  AfterEvent(request, request.attempt->LegFailed(leg, std::move(status), ended));
}

void RouterCore::Impl::AfterEvent(Request& request, Attempt::End end) {
  if (end) {
    if (absl::IsDataLoss(end->status) || absl::IsInternal(end->status)) {
      request.attempt->TellWorkersToForget();
    }
    NoteFailure(request, *end);
    switch (end->kind) {
      case AttemptEnd::Kind::kAnswered:
        NoteSuccess(request);
        Answer(request, end->answer);
        break;
      case AttemptEnd::Kind::kFailed:
        if (absl::IsResourceExhausted(end->status)) {
          core.metrics->no_room.Add();
          end->status = admission.NoRoom(request, end->status.message());
        }
        Fail(request, std::move(end->status));
        break;
      case AttemptEnd::Kind::kRefused:
        request.attempt->Close();
        request.attempt.reset();
        request.last_failure = std::move(end->status);
        request.queue = {.since = request.queue.since,
                         .refused_since = request.queue.refused_since.value_or(core.now)};
        queue.Add(request, /*front=*/true);
        break;
      case AttemptEnd::Kind::kBroken:
      case AttemptEnd::Kind::kOutgrown:
        Restart(request, *end);
        break;
    }
  }
  core.timers.Update(request);
}

void RouterCore::Impl::Restart(Request& request, const AttemptEnd& end) {
  request.attempt->Close();
  request.summary.AddBroken(request.attempt->times(), core.now);
  request.attempt.reset();
  const size_t generated = request.answer.tokens().size();
  // If all tokens arrived before the attempt failed, the answer is complete: only the worker's last
  // message is missing.
  if (const auto complete = request.answer.Complete(request.max_tokens);
      complete && !request.disputed) {
    return Answer(request, *complete);
  }
  if (core.now >= request.checked.deadline) {
    return Fail(request, absl::DeadlineExceededError(end.status.message()));
  }
  absl::Duration pause;
  Absolve(request);
  request.suspects = {};
  request.retry_taken.reset();
  if (generated > request.tokens_at_break) request.broken_in_a_row = 0;
  request.tokens_at_break = generated;
  // A sequence that is too long for its rotary table is no failure, and counts against no limit.
  if (end.kind == AttemptEnd::Kind::kOutgrown) {
    ++core.counters.outgrown;
    Log(Severity::kDebug, "outgrown",
        {{kRequestId, request.checked.request_id},
         {"tokens", request.checked.prompt.size() + generated}});
  } else {
    ++core.counters.migrations;
    const int migrations = ++request.summary.migrations, max = core.options.max_migrations;
    if (migrations > max) {
      core.metrics->tried_too_often.Add();
      return Fail(request,
                  absl::UnavailableError(absl::StrCat(
                      "gave up after ", max, " retries; the last error: ", end.status.message())));
    }
    Log(Severity::kInfo, "back_to_prefill",
        {{kRequestId, request.checked.request_id},
         {"phase", end.phase},
         {"tokens", generated},
         {"migrations", migrations},
         {"because", end.status.ToString()}});
    request.last_failure = end.status;
    // A retry because a worker found the request invalid is cheap, and there are few of them.
    if (end.kind == AttemptEnd::Kind::kBroken && end.worker != 0 &&
        !absl::IsInvalidArgument(end.status) && !AnyDied({end.worker, end.partner})) {
      request.suspects = {end.worker, end.partner};
      request.gives_up = CountBroken(request);
    }
    if (absl::IsDataLoss(end.status) || absl::IsInternal(end.status)) request.refresh_cache = true;
    pause = PauseBefore(migrations);
    if (request.gives_up) pause = std::max(pause, kDeathNotice);
  }
  request.queue = {.since = core.now, .not_before = core.now + pause};
  queue.Add(request, /*front=*/false);
}

std::optional<GivesUp> RouterCore::Impl::CountBroken(Request& request) {
  const absl::Status& error = request.last_failure;
  // A worker that preempts a sequence, because it has too few free blocks, has not failed.
  const bool preempted = absl::IsResourceExhausted(error);
  if (++request.broken_in_a_row > core.options.max_broken) {
    const std::string why = absl::StrCat(
        "gave up after ", request.broken_in_a_row,
        " attempts in a row that failed without a new token; the last error: ", error.message());
    return GivesUp{preempted ? admission.NoRoom(request, why) : absl::InternalError(why),
                   &core.metrics->broken_too_often};
  }
  if (preempted) return std::nullopt;
  if (retries_.Take(core.now)) {
    request.retry_taken = core.now;
    return std::nullopt;
  }
  return GivesUp{
      absl::UnavailableError(absl::StrCat(
          "not tried again, because ", retries_.retries(), " of the last ", retries_.attempts(),
          " attempts were retries; the last error: ", error.message())),
      &core.metrics->retries_refused};
}

bool RouterCore::Impl::AnyDied(const std::array<WorkerKey, 2>& keys) const {
  return std::any_of(keys.begin(), keys.end(), [this](WorkerKey key) {
    return key != 0 && membership.workers().Dead(key, core.now);
  });
}

bool RouterCore::Impl::Absolve(Request& request) {
  if (!AnyDied(request.suspects)) return false;
  request.suspects = {};
  --request.broken_in_a_row;
  if (request.retry_taken) retries_.GiveBack(*std::exchange(request.retry_taken, std::nullopt));
  return true;
}

void RouterCore::Impl::StopSuspecting() {
  for (auto& [key, request] : clients.all()) {
    if (!Absolve(request) || !request.gives_up) continue;
    request.gives_up.reset();
    request.queue.not_before = absl::InfinitePast();
    queue.LookAgain();
    core.timers.Update(request);
  }
}

void RouterCore::Impl::NoteFailure(Request& request, const AttemptEnd& end) {
  if (end.worker == 0 || !IsFault(end, request.checked.deadline, core.now)) return;
  const Worker* worker = membership.workers().Find(end.worker);
  const bool probe = worker != nullptr && worker->health.Probes(end.leg);
  if (request.counted_failure && !probe) return;
  request.counted_failure = true;
  NoteFailureOf(end.worker, end.leg, end.status);
  // KV that arrives wrong may be the fault of the worker that sent it.
  const WorkerKey sender = request.attempt->prefill_worker();
  if (absl::IsDataLoss(end.status) && !end.lied && sender != end.worker) {
    NoteFailureOf(sender, 0, end.status);
  }
}

void RouterCore::Impl::NoteFailureOf(WorkerKey key, LegKey leg, const absl::Status& status) {
  WorkerTable& workers = membership.workers();
  if (workers.Dead(key, core.now)) return;
  Worker& worker = *workers.Find(key);
  RequestMetrics& metrics = *core.metrics;
  (worker.prefill() ? metrics.prefill_failures : metrics.decode_failures).Add();
  membership.NoteOutcome(&worker, /*failed=*/true);
  if (!worker.health.Failed(leg) || !workers.MayEject(worker, core.now)) return;
  worker.health.Eject(core.now);
  (worker.prefill() ? metrics.prefill_ejections : metrics.decode_ejections).Add();
  membership.HealthChanged();
  Log(Severity::kWarning, "worker_ejected",
      {{"worker", worker.name.address},
       {"for", absl::FormatDuration(worker.health.until() - core.now)},
       {"because", status.ToString()}});
}

void RouterCore::Impl::NoteProgress(const Attempt& attempt) {
  for (const auto& [key, leg] : attempt.Answering()) {
    Worker* const worker = membership.workers().Find(key);
    if (worker != nullptr && worker->health.BroughtToken(leg, core.now)) NoteInUseAgain(*worker);
  }
}

void RouterCore::Impl::NoteInUseAgain(const Worker& worker) {
  membership.HealthChanged();
  Log(Severity::kInfo, "worker_in_use_again", {{"worker", worker.name.address}});
}

void RouterCore::Impl::NoteSuccess(const Request& request) {
  const Attempt& attempt = *request.attempt;
  for (const WorkerKey key : {attempt.prefill_worker(), attempt.answered_by()}) {
    Worker* const worker = membership.workers().Find(key);
    if (worker == nullptr) continue;
    membership.NoteOutcome(worker, /*failed=*/false);
    (worker->prefill() ? core.metrics->prefill_successes : core.metrics->decode_successes).Add();
    if (worker->health.Succeeded(core.now)) NoteInUseAgain(*worker);
  }
  for (const auto& [worker, leg] : request.invalid_by) {
    NoteFailureOf(worker, leg,
                  absl::InvalidArgumentError("found a request invalid that another worker served"));
  }
}

void RouterCore::Impl::Answer(Request& request, const AnswerEnd& end) {
  if (request.attempt) request.attempt->Close();
  clients.Answer(request, end);
  request.attempt.reset();
  core.timers.Update(request);
}

void RouterCore::Impl::Fail(Request& request, absl::Status status) {
  if (request.finished()) return;
  if (request.attempt) {
    request.attempt->Close();
    request.attempt.reset();
  } else {
    queue.Remove(request);
  }
  clients.Fail(request, status);
  core.timers.Update(request);
}

void RouterCore::Impl::FailOthers() {
  for (const auto& [client, code] : clients.TakeFailed()) {
    for (Request* request : clients.RequestsOf(client)) {
      Fail(*request, absl::Status(code, "another answer to the same request failed"));
    }
  }
}

void RouterCore::Impl::CheckTimers(Request& request) {
  const RouterCoreOptions& options = core.options;
  const CheckedRequest& checked = request.checked;
  const ClientStream& client = request.client;
  QueueEntry& entry = request.queue;
  if (client.ended_at) {
    if (!client.aborted && core.now >= *client.ended_at + client.leave_limit)
      clients.Abort(request);
    return;
  }
  if (core.now >= checked.deadline) {
    std::string message =
        absl::StrCat("the deadline passed ", absl::FormatDuration(core.now - checked.arrival),
                     " after arrival, with ", request.answer.tokens().size(), " tokens generated");
    if (!request.attempt && entry.no_workers_since) {
      absl::StrAppend(&message, "; ", membership.MissingFor(request));
    }
    Fail(request, absl::DeadlineExceededError(message));
  } else if (client.slow_since && core.now >= *client.slow_since + options.slow_client_limit) {
    core.metrics->slow_clients.Add();
    Fail(request, absl::ResourceExhaustedError(absl::StrCat(
                      "the client read too slowly: ", Clients::WaitingTokens(request),
                      " tokens waited for ", absl::FormatDuration(core.now - *client.slow_since))));
  } else if (request.attempt) {
    AfterEvent(request, request.attempt->CheckTimers());
  } else if (entry.no_workers_since && core.now >= *entry.no_workers_since + options.pair_wait) {
    std::string message = absl::StrCat(membership.MissingFor(request), "; waited ",
                                       absl::FormatDuration(core.now - *entry.no_workers_since));
    if (!request.last_failure.ok()) {
      absl::StrAppend(&message, "; the last error: ", request.last_failure.message());
    }
    core.metrics->no_worker.Add();
    Fail(request, absl::UnavailableError(message));
  } else if (core.now >= request.WaitsUntil(options)) {
    Fail(request, admission.WaitedTooLong(request));
  } else if (entry.refused_since && core.now >= *entry.refused_since + options.room_wait) {
    core.metrics->no_room.Add();
    Fail(request, admission.NoRoom(
                      request, absl::StrCat("every worker for its prompt was full for ",
                                            absl::FormatDuration(core.now - *entry.refused_since),
                                            "; the last error: ", request.last_failure.message())));
  } else if (entry.not_before <= core.now && request.gives_up) {
    if (!AnyDied(request.suspects)) {
      request.gives_up->counter->Add();
      return Fail(request, std::move(request.gives_up->status));
    }
    StopSuspecting();
  } else if (entry.not_before <= core.now) {
    entry.not_before = absl::InfinitePast();
    queue.LookAgain();
  }
}

}  // namespace baton
