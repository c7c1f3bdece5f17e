#include "router/ways.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

using Choice = WorkerTable::Choice;

// Whether `b` can go to no worker that `a` can't go to.
bool AtLeastAsPicky(const Need& b, const Need& a) {
  return b.tokens >= a.tokens && a.identity == b.identity;
}

}  // namespace

Ways::Ways(const RouterCoreOptions& options, WorkerTable* workers,
           const std::set<WorkerKey>& awaited, std::set<ModelIdentity> identities, absl::Time now)
    : places_{.prompts = options.max_prompts_per_worker, .awaited = awaited},
      short_places_{.prompts = options.max_prompts_per_worker,
                    .tokens = static_cast<uint64_t>(options.auto_queue_tokens),
                    .awaited = awaited},
      identities_(std::move(identities)),
      auto_prompt_tokens_(static_cast<size_t>(options.auto_prompt_tokens)),
      workers_(workers),
      now_(now) {}

absl::Span<const Ways::Way> Ways::OrderFor(v1::ServingMode mode, size_t tokens) const {
  static constexpr Way kSplitOnly[] = {kSplit};
  static constexpr Way kColocatedOnly[] = {kColocated};
  static constexpr Way kShortPrompt[] = {kColocated, kSplit};
  static constexpr Way kLongPrompt[] = {kShortSplit, kColocated, kSplit};
  if (mode == v1::SERVING_MODE_DISAGGREGATED) return kSplitOnly;
  if (mode == v1::SERVING_MODE_COLOCATED) return kColocatedOnly;
  if (tokens <= auto_prompt_tokens_) return kShortPrompt;
  return kLongPrompt;
}

Ways::Found Ways::Find(v1::ServingMode mode, size_t tokens, const Need& need,
                       WorkerKey avoid_prefill, WorkerKey avoid_decode) {
  Found found;
  // The worker that failed it last, where there was no other.
  Found avoided;
  for (const Way way : OrderFor(mode, tokens)) {
    Found next{.colocated = way == kColocated};
    const WorkerKey avoid = next.colocated ? avoid_decode : avoid_prefill;
    next.choice = Try(way, need, avoid, &next.worker);
    if (next.choice == Choice::kTaken) {
      if (avoid == 0 || next.worker->name.key != avoid) return next;
      if (avoided.worker == nullptr) avoided = next;
    }
    if (next.choice != Choice::kNone) found = next;
  }
  return avoided.worker != nullptr ? avoided : found;
}

bool Ways::Closed(const CountOfMode& queued) const {
  for (size_t mode = 0; mode < queued.size(); ++mode) {
    if (queued[mode] == 0) continue;
    const bool closed = mode == v1::SERVING_MODE_DISAGGREGATED ? prefill_closed_
                        : mode == v1::SERVING_MODE_COLOCATED   ? decode_closed_
                                                               : prefill_closed_ && decode_closed_;
    if (!closed) return false;
  }
  return true;
}

WorkerTable::Choice Ways::Try(Way way, Need need, WorkerKey avoid, Worker** worker) {
  std::vector<Need>& busy = busy_[way];
  if (std::any_of(busy.begin(), busy.end(),
                  [&](const Need& other) { return AtLeastAsPicky(need, other); })) {
    return Choice::kBusy;
  }
  need.avoid = avoid;
  const WorkerTable::Places& places = way == kShortSplit ? short_places_ : places_;
  const Choice choice = way == kColocated ? workers_->ChooseColocated(need, places, now_, worker)
                                          : workers_->ChoosePrefill(need, places, now_, worker);
  if (choice == Choice::kBusy) {
    busy.erase(std::remove_if(busy.begin(), busy.end(),
                              [&](const Need& other) { return AtLeastAsPicky(other, need); }),
               busy.end());
    busy.push_back(std::move(need));
    bool& closed = way == kColocated ? decode_closed_ : prefill_closed_;
    const WorkerTable::Role role =
        way == kColocated ? WorkerTable::Role::kDecode : WorkerTable::Role::kPrefill;
    closed = !workers_->AnyPlace(role, identities_, places_, now_);
  }
  return choice;
}

}  // namespace baton
