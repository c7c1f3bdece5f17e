#include "router/core/request_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/core/request.h"

namespace baton {
namespace {

// Max requests without a free worker that one look through the queue (Round) passes over.
constexpr int kMaxPassed = 1024;
// A worker that has the prompt cached may have this many times the work to do that
// RouterCoreOptions::work_ahead allows.
constexpr int kMaxWorkAhead = 4;

using Choice = WorkerTable::Choice;

// Returns true if need `b` asks at least as much of a worker as need `a`: every worker that can
// serve `b` now can also serve `a`.
bool AtLeastAsDemanding(const Need& b, const Need& a) {
  return b.tokens >= a.tokens && b.turn >= a.turn && a.identity == b.identity;
}

}  // namespace

// One look through the queue. Finds the worker for each request by its mode. Remembers the needs
// for which all workers were busy, so that a long queue costs little. During a round, the caller
// may give prompts to workers, but nothing else may change.
class RequestQueue::Round {
 public:
  // `identities` must include every identity that a queued request may need.
  Round(const CoreContext& core, WorkerTable* workers, const std::set<WorkerKey>& awaited,
        std::set<ModelIdentity> identities)
      : places_{.prompts = core.options.max_prompts_per_worker,
                .own_tokens = TokensIn(core, core.options.work_ahead),
                .max_own_tokens = TokensIn(core, kMaxWorkAhead * core.options.work_ahead),
                .awaited = awaited},
        short_places_(places_),
        identities_(std::move(identities)),
        auto_prompt_tokens_(static_cast<size_t>(core.options.auto_prompt_tokens)),
        workers_(workers),
        now_(core.now) {
    short_places_.tokens = static_cast<uint64_t>(core.options.auto_queue_tokens);
    cached_places_ = short_places_;
    cached_places_.uncached = static_cast<uint64_t>(core.options.auto_uncached_tokens);
  }

  // Returns kBusy if some workers fit the request but none can take another prompt now. A worker
  // that has failed the request is chosen only if there is no other.
  Choice Find(const Request& request, const Need& need, Placement* placement) {
    Choice choice = Choice::kNone;
    Placement avoided;
    for (const Route route : RoutesFor(request)) {
      const bool colocated = route == kColocated || route == kCached;
      ChosenWorker chosen;
      const Choice found = Try(route, need, &chosen);
      const Placement next{chosen.worker, chosen.cached_tokens, colocated};
      if (found == Choice::kTaken && !request.WasFailedBy(next.worker->name.key)) {
        *placement = next;
        return found;
      }
      if (found == Choice::kTaken && avoided.worker == nullptr) avoided = next;
      if (found != Choice::kNone) choice = found;
    }
    if (avoided.worker == nullptr) return choice;
    *placement = avoided;
    return Choice::kTaken;
  }

  // Returns true if it is certain that in this round, no queued request can get a worker whose
  // QueueEntry::turn is not smaller than that of the last one for which all workers were busy. May
  // return false although all workers are busy. `queued` is the number of queued requests of each
  // mode.
  bool Closed(const std::array<int, kServingModes>& queued) const {
    for (const ServingMode mode : {ServingMode::kUnspecified, ServingMode::kDisaggregated,
                                   ServingMode::kColocated, ServingMode::kAuto}) {
      if (queued[static_cast<size_t>(mode)] > 0 &&
          !(mode == ServingMode::kDisaggregated ? prefill_closed_
            : mode == ServingMode::kColocated   ? decode_closed_
                                                : prefill_closed_ && decode_closed_)) {
        return false;
      }
    }
    return true;
  }

  // Must be called before a look at a request with a smaller QueueEntry::turn than those before it.
  void ForgetClosed() { prefill_closed_ = decode_closed_ = false; }

 private:
  // Routes of a request. kShortSplit: to a prefill worker with at most auto_queue_tokens waiting
  // tokens. kSplit: to any prefill worker. kColocated: to a decode worker alone. kCached: to a
  // decode worker alone that has some of the prompt cached, and all but at most
  // auto_uncached_tokens, and at most auto_queue_tokens waiting tokens.
  enum Route { kShortSplit, kSplit, kColocated, kCached, kRoutes };

  // Returns the kinds of workers (Route) that are tried for the request, in order.
  absl::Span<const Route> RoutesFor(const Request& request) const {
    static constexpr Route kSplitOnly[] = {kSplit};
    static constexpr Route kColocatedOnly[] = {kColocated};
    static constexpr Route kShortPrompt[] = {kColocated, kSplit};
    static constexpr Route kLongPrompt[] = {kShortSplit, kColocated, kSplit};
    static constexpr Route kKnownPrompt[] = {kCached, kShortSplit, kColocated, kSplit};
    if (request.checked.mode == ServingMode::kDisaggregated) return kSplitOnly;
    if (request.checked.mode == ServingMode::kColocated) return kColocatedOnly;
    const size_t tokens = request.checked.prompt.size() + request.answer.tokens().size();
    if (tokens <= auto_prompt_tokens_) return kShortPrompt;
    const bool known = request.checked.block_names != nullptr && request.may_find_cached_kv();
    return known ? absl::MakeConstSpan(kKnownPrompt) : absl::MakeConstSpan(kLongPrompt);
  }

  Choice Try(Route route, Need need, ChosenWorker* chosen) {
    const auto all_busy = [&](Route of) {
      return std::any_of(busy_[of].begin(), busy_[of].end(),
                         [&](const Need& other) { return AtLeastAsDemanding(need, other); });
    };
    if (route == kCached) {
      if (all_busy(kColocated)) return Choice::kNone;
      // Another route is tried if no worker has the prompt cached, or the ones that have it are
      // busy.
      WorkerTable::Places places = cached_places_;
      places.uncached = std::min(places.uncached, static_cast<uint64_t>(need.prompt_tokens - 1));
      const Choice choice = workers_->ChooseColocated(need, places, now_, chosen);
      return choice == Choice::kTaken ? choice : Choice::kNone;
    }
    if (all_busy(route)) return Choice::kBusy;
    std::vector<Need>& busy = busy_[route];
    const bool colocated = route == kColocated;
    const WorkerTable::Places& places = route == kShortSplit ? short_places_ : places_;
    const Choice choice = colocated ? workers_->ChooseColocated(need, places, now_, chosen)
                                    : workers_->ChoosePrefill(need, places, now_, chosen);
    if (choice == Choice::kBusy) {
      busy.erase(std::remove_if(busy.begin(), busy.end(),
                                [&](const Need& other) { return AtLeastAsDemanding(other, need); }),
                 busy.end());
      const uint64_t turn = need.turn;
      busy.push_back(std::move(need));
      (colocated ? decode_closed_ : prefill_closed_) =
          !workers_->AnyPlace(colocated ? WorkerTable::Role::kDecode : WorkerTable::Role::kPrefill,
                              identities_, places_, turn, now_);
    }
    return choice;
  }

  static uint64_t TokensIn(const CoreContext& core, absl::Duration time) {
    return core.forecast.PromptTokensIn(time).value_or(std::numeric_limits<uint64_t>::max());
  }

  const WorkerTable::Places places_;
  WorkerTable::Places short_places_, cached_places_;
  const std::set<ModelIdentity> identities_;
  const size_t auto_prompt_tokens_;
  WorkerTable* const workers_;
  const absl::Time now_;
  // Holds, for each route (kind of worker for the prompt), the needs of requests that found every
  // candidate worker busy. A request that needs at least as much is not tried, so only the smallest
  // needs are kept.
  std::array<std::vector<Need>, kRoutes> busy_;
  bool prefill_closed_ = false, decode_closed_ = false;
};

void RequestQueue::Add(Request& request, bool front) {
  ++queued_of_mode_[static_cast<size_t>(request.checked.mode)];
  request.waiting_work = {.prompt_tokens = static_cast<double>(request.checked.prompt.size() +
                                                               request.answer.tokens().size()),
                          .answer_tokens = core_->forecast.AnswerTokens(request.max_tokens)};
  work_ += request.waiting_work;
  if (!request.tried) {
    Caller* const caller = request.caller;
    if (caller->waiting.empty()) {
      core_->callers.BeginsToWait(caller, SmallestCharge());
      callers_.push_back(caller);
    }
    caller->waiting.push_back(&request);
    caller->work += request.waiting_work;
    ++fresh_;
  } else {
    work_again_ += request.waiting_work;
    again_.insert(front ? again_.begin() : again_.end(), &request);
  }
  if (!membership_->Servable(request) && !request.queue.no_workers_since) {
    request.queue.no_workers_since = core_->now;
  }
  LookAgain();
}

std::optional<uint64_t> RequestQueue::SmallestCharge() const {
  std::optional<uint64_t> smallest;
  for (const Caller* caller : callers_) {
    smallest = std::min(smallest.value_or(caller->charged), caller->charged);
  }
  return smallest;
}

void RequestQueue::Remove(Request& request) {
  std::list<Request*>& list = request.tried ? again_ : request.caller->waiting;
  if (list.remove(&request) > 0) NoteRemoved(request);
}

void RequestQueue::NoteRemoved(Request& request) {
  --queued_of_mode_[static_cast<size_t>(request.checked.mode)];
  work_ -= request.waiting_work;
  if (request.tried) {
    work_again_ -= request.waiting_work;
  } else {
    --fresh_;
    request.caller->work -= request.waiting_work;
    if (request.caller->waiting.empty()) {
      request.caller->work = {};
      std::erase(callers_, request.caller);
    }
  }
  // A sum of fractions that come and go does not end at exactly zero.
  if (size() == 0) work_ = {};
  if (again_.empty()) work_again_ = {};
}

absl::Status RequestQueue::Size(Request& request) const {
  const int64_t capacity = membership_->CapacityFor(request),
                context = core_->options.context_tokens;
  const int64_t limit = context > 0 ? std::min(context, capacity) : capacity;
  const SamplingOptions& sampling = request.checked.sampling;
  const int64_t prompt = static_cast<int64_t>(request.checked.prompt.size());
  const int64_t answer = std::max(1, request.max_tokens);
  if (prompt + answer > limit) {
    return absl::InvalidArgumentError(absl::StrCat("prompt of ", prompt, " tokens and max_tokens ",
                                                   answer, " make ", prompt + answer,
                                                   "; the workers take ", limit, " tokens"));
  }
  if (request.max_tokens == 0) {
    request.max_tokens = static_cast<int>(
        std::min<int64_t>(limit - prompt, request.checked.default_max_tokens.value_or(limit)));
  }
  if (sampling.min_tokens > request.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("min_tokens is ", sampling.min_tokens,
                                                   "; the context leaves ", request.max_tokens,
                                                   " tokens for the answer"));
  }
  request.sized = true;
  return absl::OkStatus();
}

void RequestQueue::ForgetSizes() {
  for (const Caller* caller : callers_) {
    for (Request* request : caller->waiting) {
      if (request->identity) continue;
      request->sized = false;
      request->max_tokens = request->checked.sampling.max_tokens;
    }
  }
}

void RequestQueue::NoteWorkers() {
  std::set<ModelIdentity> pairs, decode;
  for (const auto& [identity, all] : membership_->workers().identities()) {
    if (all.pairs > 0) pairs.insert(identity);
    if (all.ready_decode > 0) decode.insert(identity);
  }
  const std::optional<ModelIdentity>& served = membership_->served();
  if (served == noted_served_ && pairs == noted_pairs_ && decode == noted_decode_) return;
  noted_served_ = served;
  noted_pairs_ = std::move(pairs);
  noted_decode_ = std::move(decode);
  const auto note = [this](Request& request) {
    std::optional<absl::Time>& since = request.queue.no_workers_since;
    if (membership_->Servable(request)) {
      request.queue.WorkersServe(core_->now);
    } else if (!since) {
      since = core_->now;
    }
    core_->timers.Update(request);
  };
  for (Request* request : again_) note(*request);
  for (const Caller* caller : callers_) {
    for (Request* request : caller->waiting) note(*request);
  }
}

void RequestQueue::RunRound(const std::set<WorkerKey>& awaited, std::set<ModelIdentity> begun,
                            Leave leave) {
  due_ = false;
  round_at_ = absl::InfiniteFuture();
  prompts_wait_ = colocated_wait_ = false;
  if (!callers_.empty()) core_->callers.Advance(core_->now);
  if (noted_decode_.empty()) return;
  if (membership_->served()) begun.insert(*membership_->served());
  Round round(*core_, &membership_->workers(), awaited, std::move(begun));
  int passed = 0;
  // A request may have an earlier turn than those in front of it. So it is looked at even if those
  // in front found all workers busy.
  for (auto place = again_.begin(); place != again_.end();) {
    Request& request = **place;
    request.queue.turn =
        request.caller->Turn(request.checked.prompt.size() + request.answer.tokens().size());
    LookAt(round, &again_, place++, &passed, leave);
    if (passed > kMaxPassed) return;
  }
  round.ForgetClosed();
  LookAtFresh(round, &passed, leave);
}

// Looks at the requests that have never run. After each request it is the turn of the caller that
// will have had the fewest tokens once the prompt of its next request is computed (weighted fair
// queueing, Demers et al., 1989). A request that is passed over counts in this round as if it had
// run, so that the other callers get their turn too.
void RequestQueue::LookAtFresh(Round& round, int* passed, Leave leave) {
  struct Turn {
    Caller* caller;
    Place next;             // If the newest goes first: the place behind the next one.
    size_t left;            // Requests that were not looked at.
    uint64_t skipped = 0;   // Prompt tokens of the requests that were passed over.
    absl::Time since = {};  // When the next request began to wait.
    uint64_t length = 0;    // Prompt tokens of the next request.
  };
  const auto later = [](const Turn& a, const Turn& b) {
    return std::tuple(a.caller->Turn(a.skipped + a.length), a.since) >
           std::tuple(b.caller->Turn(b.skipped + b.length), b.since);
  };
  const auto take = [this](Turn& turn) {
    --turn.left;
    return newest_first_ ? --turn.next : turn.next++;
  };
  const auto see_next = [this](Turn& turn) {
    const Request& next = **(newest_first_ ? std::prev(turn.next) : turn.next);
    turn.since = next.queue.since;
    turn.length = next.checked.prompt.size();
  };
  std::vector<Turn> turns;
  for (Caller* caller : callers_) {
    if (core_->callers.RunsEnough(*caller)) continue;
    std::list<Request*>& waiting = caller->waiting;
    turns.push_back({.caller = caller,
                     .next = newest_first_ ? waiting.end() : waiting.begin(),
                     .left = waiting.size()});
    see_next(turns.back());
  }
  std::make_heap(turns.begin(), turns.end(), later);
  while (!turns.empty()) {
    std::pop_heap(turns.begin(), turns.end(), later);
    Turn& turn = turns.back();
    const Place place = take(turn);
    const uint64_t tokens = (*place)->checked.prompt.size();
    (*place)->queue.turn = turn.caller->Turn(turn.skipped + tokens);
    if (newest_first_) ++turn.next;  // LookAt() may remove `place`.
    const Look look = LookAt(round, &turn.caller->waiting, place, passed, leave);
    if (look == Look::kEndRound) return;
    if (look != Look::kLeft && newest_first_) --turn.next;
    if (look == Look::kPassed) turn.skipped += tokens;
    if (turn.left == 0 || core_->callers.RunsEnough(*turn.caller)) {
      turns.pop_back();
    } else {
      see_next(turn);
      std::push_heap(turns.begin(), turns.end(), later);
    }
  }
}

RequestQueue::Look RequestQueue::LookAt(Round& round, std::list<Request*>* list, Place place,
                                        int* passed, Leave leave) {
  Request& request = **place;
  if (request.queue.not_before > core_->now || !membership_->Servable(request)) {
    return Look::kNotNow;
  }
  const auto leaves = [&](const absl::StatusOr<Placement>& placement) {
    list->erase(place);
    NoteRemoved(request);
    leave(request, placement);
    return Look::kLeft;
  };
  if (absl::Status fits = request.sized ? absl::OkStatus() : Size(request); !fits.ok()) {
    return leaves(fits);
  }
  Placement placement;
  const Choice choice = round.Find(request, membership_->NeedOf(request), &placement);
  std::optional<absl::Time>& no_workers_since = request.queue.no_workers_since;
  if (choice == Choice::kNone) {
    if (!no_workers_since) {
      no_workers_since = core_->now;
      core_->timers.Update(request);
    }
    return Look::kNotNow;
  }
  if (no_workers_since) {
    request.queue.WorkersServe(core_->now);
    core_->timers.Update(request);
  }
  if (choice == Choice::kTaken) return leaves(placement);
  round_at_ = core_->now + kFullPause;
  (request.checked.mode == ServingMode::kColocated ? colocated_wait_ : prompts_wait_) = true;
  return ++*passed > kMaxPassed || round.Closed(queued_of_mode_) ? Look::kEndRound : Look::kPassed;
}

}  // namespace baton
