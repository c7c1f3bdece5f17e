#include "router/core/request_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/core/request.h"

namespace baton {
namespace {

// Max requests without a free worker that one look through the queue (Round) passes over.
constexpr int kMaxPassed = 1024;

using Choice = WorkerTable::Choice;

// Returns true if need `b` asks at least as much of a worker as need `a`: every worker that can
// serve `b` can also serve `a`.
bool AtLeastAsDemanding(const Need& b, const Need& a) {
  return b.tokens >= a.tokens && a.identity == b.identity;
}

// One look through the queue. Finds the worker for each request by its mode. Remembers the needs
// for which all workers were busy, so that a long queue costs little. During a round, the caller
// may give prompts to workers, but nothing else may change.
class Round {
 public:
  // `identities` must include every identity that a queued request may need.
  Round(const CoreContext& core, WorkerTable* workers, const std::set<WorkerKey>& awaited,
        std::set<ModelIdentity> identities)
      : places_{.prompts = core.options.max_prompts_per_worker, .awaited = awaited},
        short_places_{.prompts = core.options.max_prompts_per_worker,
                      .tokens = static_cast<uint64_t>(core.options.auto_queue_tokens),
                      .awaited = awaited},
        cached_places_{.prompts = core.options.max_prompts_per_worker,
                       .tokens = static_cast<uint64_t>(core.options.auto_queue_tokens),
                       .uncached = static_cast<uint64_t>(core.options.auto_prompt_tokens),
                       .awaited = awaited},
        identities_(std::move(identities)),
        auto_prompt_tokens_(static_cast<size_t>(core.options.auto_prompt_tokens)),
        workers_(workers),
        now_(core.now) {}

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

  // Returns true if it is certain that no queued request can get a worker in this round. May return
  // false although all workers are busy. `queued` is the number of queued requests of each mode.
  bool Closed(const std::array<int, v1::ServingMode_ARRAYSIZE>& queued) const {
    for (size_t mode = 0; mode < queued.size(); ++mode) {
      if (queued[mode] > 0 &&
          !(mode == v1::SERVING_MODE_DISAGGREGATED ? prefill_closed_
            : mode == v1::SERVING_MODE_COLOCATED   ? decode_closed_
                                                   : prefill_closed_ && decode_closed_)) {
        return false;
      }
    }
    return true;
  }

 private:
  // Routes of a request. kShortSplit: to a prefill worker with at most auto_queue_tokens waiting
  // tokens. kSplit: to any prefill worker. kColocated: to a decode worker alone. kCached: to a
  // decode worker alone that has all but at most auto_prompt_tokens of the prompt cached, and at
  // most auto_queue_tokens waiting tokens.
  enum Route { kShortSplit, kSplit, kColocated, kCached, kRoutes };

  // Returns the kinds of workers (Route) that are tried for the request, in order.
  absl::Span<const Route> RoutesFor(const Request& request) const {
    static constexpr Route kSplitOnly[] = {kSplit};
    static constexpr Route kColocatedOnly[] = {kColocated};
    static constexpr Route kShortPrompt[] = {kColocated, kSplit};
    static constexpr Route kLongPrompt[] = {kShortSplit, kColocated, kSplit};
    static constexpr Route kKnownPrompt[] = {kCached, kShortSplit, kColocated, kSplit};
    if (request.checked.mode == v1::SERVING_MODE_DISAGGREGATED) return kSplitOnly;
    if (request.checked.mode == v1::SERVING_MODE_COLOCATED) return kColocatedOnly;
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
      const Choice choice = workers_->ChooseColocated(need, cached_places_, now_, chosen);
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
      busy.push_back(std::move(need));
      (colocated ? decode_closed_ : prefill_closed_) =
          !workers_->AnyPlace(colocated ? WorkerTable::Role::kDecode : WorkerTable::Role::kPrefill,
                              identities_, places_, now_);
    }
    return choice;
  }

  const WorkerTable::Places places_, short_places_, cached_places_;
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

}  // namespace

void RequestQueue::Add(Request& request, bool front) {
  ++queued_of_mode_[request.checked.mode];
  if (!request.tried) {
    fresh_.push_back(&request);
  } else if (front) {
    again_.push_front(&request);
  } else {
    again_.push_back(&request);
  }
  if (!membership_->Servable(request) && !request.queue.no_workers_since) {
    request.queue.no_workers_since = core_->now;
  }
  LookAgain();
}

void RequestQueue::Remove(Request& request) {
  const size_t removed = fresh_.remove(&request) + again_.remove(&request);
  queued_of_mode_[request.checked.mode] -= static_cast<int>(removed);
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
  if (request.max_tokens == 0) request.max_tokens = static_cast<int>(limit - prompt);
  if (sampling.min_tokens > request.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("min_tokens is ", sampling.min_tokens,
                                                   "; the context leaves ", request.max_tokens,
                                                   " tokens for the answer"));
  }
  request.sized = true;
  return absl::OkStatus();
}

void RequestQueue::ForgetSizes() {
  for (Request* request : fresh_) {
    if (request->identity) continue;
    request->sized = false;
    request->max_tokens = request->checked.sampling.max_tokens;
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
  for (const auto* list : {&fresh_, &again_}) {
    for (Request* request : *list) {
      std::optional<absl::Time>& since = request->queue.no_workers_since;
      if (membership_->Servable(*request)) {
        since.reset();
      } else if (!since) {
        since = core_->now;
      }
      core_->timers.Update(*request);
    }
  }
}

void RequestQueue::RunRound(const std::set<WorkerKey>& awaited, std::set<ModelIdentity> begun,
                            Leave leave) {
  due_ = false;
  round_at_ = absl::InfiniteFuture();
  if (noted_decode_.empty()) return;
  if (membership_->served()) begun.insert(*membership_->served());
  Round round(*core_, &membership_->workers(), awaited, std::move(begun));
  int passed = 0;
  for (auto* list : {&again_, &fresh_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto place = it++;
      Request& request = **place;
      if (request.queue.not_before > core_->now || !membership_->Servable(request)) continue;
      const auto leaves = [&](const absl::StatusOr<Placement>& placement) {
        list->erase(place);
        --queued_of_mode_[request.checked.mode];
        leave(request, placement);
      };
      if (absl::Status fits = request.sized ? absl::OkStatus() : Size(request); !fits.ok()) {
        leaves(fits);
        continue;
      }
      Placement placement;
      const Choice choice = round.Find(request, membership_->NeedOf(request), &placement);
      std::optional<absl::Time>& no_workers_since = request.queue.no_workers_since;
      if (choice == Choice::kNone) {
        if (!no_workers_since) {
          no_workers_since = core_->now;
          core_->timers.Update(request);
        }
        continue;
      }
      no_workers_since.reset();
      if (choice == Choice::kTaken) {
        leaves(placement);
        continue;
      }
      round_at_ = core_->now + kFullPause;
      if (++passed > kMaxPassed || round.Closed(queued_of_mode_)) return;
    }
  }
}

}  // namespace baton
