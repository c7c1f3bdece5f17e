#include "router/request_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/request.h"

namespace baton {
namespace {

// How many requests whose own workers are all busy one round passes over.
constexpr int kMostPassed = 1024;

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
  SamplingOptions& sampling = request.checked.sampling;
  const int64_t prompt = static_cast<int64_t>(request.checked.prompt.size());
  const int64_t answer = std::max(1, sampling.max_tokens);
  if (prompt + answer > limit) {
    return absl::InvalidArgumentError(absl::StrCat("prompt of ", prompt, " tokens and max_tokens ",
                                                   answer, " make ", prompt + answer,
                                                   "; the workers take ", limit, " tokens"));
  }
  if (sampling.max_tokens == 0) sampling.max_tokens = static_cast<int>(limit - prompt);
  if (sampling.min_tokens > sampling.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("min_tokens is ", sampling.min_tokens,
                                                   "; the context leaves ", sampling.max_tokens,
                                                   " for the answer"));
  }
  request.sized = true;
  return absl::OkStatus();
}

void RequestQueue::ForgetSizes() {
  for (Request* request : fresh_) {
    if (request->identity) continue;
    request->sized = false;
    request->checked.sampling.max_tokens = request->asked_max_tokens;
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
  Ways ways(core_->options, &membership_->workers(), awaited, std::move(begun), core_->now);
  int passed = 0;
  for (auto* list : {&again_, &fresh_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto place = it++;
      Request& request = **place;
      if (request.queue.not_before > core_->now || !membership_->Servable(request)) continue;
      const auto leaves = [&](const absl::StatusOr<Ways::Found>& found) {
        list->erase(place);
        --queued_of_mode_[request.checked.mode];
        leave(request, found);
      };
      if (absl::Status fits = request.sized ? absl::OkStatus() : Size(request); !fits.ok()) {
        leaves(fits);
        continue;
      }
      const Ways::Found found = ways.Find(
          request.checked.mode, request.checked.prompt.size() + request.answer.tokens().size(),
          membership_->NeedOf(request), request.avoid_prefill, request.avoid_decode);
      std::optional<absl::Time>& no_workers_since = request.queue.no_workers_since;
      if (found.choice == WorkerTable::Choice::kNone) {
        if (!no_workers_since) {
          no_workers_since = core_->now;
          core_->timers.Update(request);
        }
        continue;
      }
      no_workers_since.reset();
      if (found.choice == WorkerTable::Choice::kTaken) {
        leaves(found);
        continue;
      }
      round_at_ = core_->now + kFullPause;
      if (++passed > kMostPassed || ways.Closed(queued_of_mode_)) return;
    }
  }
}

}  // namespace baton
