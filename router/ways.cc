#include "router/ways.h"

#include <algorithm>

namespace baton {
namespace {

using Choice = WorkerTable::Choice;

// Whether `b` can go to no worker that `a` can't go to.
bool AtLeastAsPicky(const Need& b, const Need& a) {
  return b.tokens >= a.tokens && (!a.identity || a.identity == b.identity);
}

}  // namespace

Ways::Ways(const RouterCoreOptions& options, WorkerTable* workers, absl::Time now)
    : places_{.prompts = options.max_prompts_per_worker},
      short_places_{.prompts = options.max_prompts_per_worker,
                    .tokens = static_cast<uint64_t>(options.auto_queue_tokens)},
      auto_prompt_tokens_(static_cast<size_t>(options.auto_prompt_tokens)),
      workers_(workers),
      now_(now) {}

Ways::Found Ways::Find(v1::ServingMode mode, size_t tokens, const Need& need,
                       WorkerKey avoid_prefill, WorkerKey avoid_decode) {
  std::vector<Way> order;
  if (mode == v1::SERVING_MODE_DISAGGREGATED) {
    order = {kSplit};
  } else if (mode == v1::SERVING_MODE_COLOCATED) {
    order = {kColocated};
  } else if (tokens <= auto_prompt_tokens_) {
    order = {kColocated, kSplit};
  } else {
    order = {kShortSplit, kColocated, kSplit};
  }
  Found found;
  for (const Way way : order) {
    found.colocated = way == kColocated;
    const Choice choice =
        Try(way, need, found.colocated ? avoid_decode : avoid_prefill, &found.worker);
    if (choice != Choice::kNone) found.choice = choice;
    if (choice == Choice::kTaken) return found;
  }
  return found;
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
    closed_ = !workers_->AnyPlace(places_, now_);
  }
  return choice;
}

}  // namespace baton
