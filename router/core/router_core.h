#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "router/core/core_events.h"
#include "router/core/router_core_options.h"
#include "router/core/router_counters.h"

namespace baton {

// The router's logic: admission, the choice of workers, the legs (RPCs to the workers) of every
// request, the handling of failures, text and stop strings. It does no I/O and has no thread, clock
// or socket: it takes events and returns actions. Deterministic: the same events at the same times
// give the same actions.
//
// One thread calls all functions, the core's loop thread. The core owns all requests and legs.
class RouterCore {
 public:
  explicit RouterCore(RouterCoreOptions options);
  ~RouterCore();

  // Takes one event. `now` never goes back. Aborts on a second LegEnded of a leg, and on a request
  // key that is in use. Ignores other events of requests and legs that are over.
  void Handle(CoreEvent event, absl::Time now);
  // Runs what is due: first timers, then the hand-out of waiting requests to workers. Call it after
  // a batch of events and at NextWake().
  void RunOnce(absl::Time now);
  // Returns the actions since the last call, oldest first. The caller must carry out each one.
  // Actions on the same request, leg or attach stream must keep this order.
  std::vector<CoreAction> TakeActions();
  // Time at which RunOnce has something to do even if no event comes; InfiniteFuture: never.
  absl::Time NextWake() const;

  // Number of requests whose ClientGone has not come, of legs whose LegEnded has not come, and of
  // requests that wait for a worker.
  size_t requests() const;
  size_t legs() const;
  size_t queued() const;
  const RouterCounters& counters() const;
  // Returns the workers that are known to keep the first of these blocks, by address, and the
  // number of leading blocks that each keeps. For tests.
  std::map<std::string, int> KeepersOf(absl::Span<const BlockName> prompt);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
