#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "router/router_core.h"
#include "router/worker_table.h"

namespace baton {

// Who computes a prompt: during one look at the queue, finds the worker for each request by its
// mode. Remembers what was busy, so that a long queue costs little.
class Ways {
 public:
  // `workers` must outlive it, and nothing but places taken may change meanwhile.
  // `awaited`: see WorkerTable::Places. `identities`: at least those that requests in the queue may
  // need.
  Ways(const RouterCoreOptions& options, WorkerTable* workers, const std::set<WorkerKey>& awaited,
       std::set<ModelIdentity> identities, absl::Time now);

  struct Found {
    WorkerTable::Choice choice = WorkerTable::Choice::kNone;
    bool colocated = false;
    Worker* worker = nullptr;  // if taken
  };
  // For `tokens` to compute in `mode`, which is specified. kBusy: there are workers, and none has a
  // place.
  Found Find(v1::ServingMode mode, size_t tokens, const Need& need, WorkerKey avoid_prefill,
             WorkerKey avoid_decode);
  using CountOfMode = std::array<int, v1::ServingMode_ARRAYSIZE>;
  // Nothing of what is queued, so many requests of each mode, would find a place, whatever its
  // need. Certain only if true.
  bool Closed(const CountOfMode& queued) const;

 private:
  // Split where the queue is short enough for auto; split; colocated.
  enum Way { kShortSplit, kSplit, kColocated, kWays };
  absl::Span<const Way> OrderFor(v1::ServingMode mode, size_t tokens) const;
  WorkerTable::Choice Try(Way way, Need need, WorkerKey avoid, Worker** worker);

  const WorkerTable::Places places_, short_places_;
  const std::set<ModelIdentity> identities_;
  const size_t auto_prompt_tokens_;
  WorkerTable* const workers_;
  const absl::Time now_;
  // Of those that found all busy; of each way none is at least as picky as another.
  std::array<std::vector<Need>, kWays> busy_;
  bool prefill_closed_ = false, decode_closed_ = false;
};

}  // namespace baton
