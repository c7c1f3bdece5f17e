#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "router/core/callers.h"
#include "router/core/core_events.h"
#include "router/core/forecast.h"
#include "router/core/router_core_options.h"
#include "router/core/router_counters.h"

// State that the parts of RouterCore share. All of it belongs to the core's loop thread.
namespace baton {

struct Request;

// Returns whole microseconds; 0 for a negative duration.
inline uint64_t Micros(absl::Duration d) {
  return d <= absl::ZeroDuration() ? 0 : static_cast<uint64_t>(absl::ToInt64Microseconds(d));
}

// Timers of the requests: when a request must be looked at even if no event comes.
class RequestTimers {
 public:
  explicit RequestTimers(const RouterCoreOptions& options) : options_(options) {}

  // Sets the request's timer to the earliest time at which the request is due. Must be called after
  // each change of the request.
  void Update(Request& request);
  // Sets the request's timer to `wake`; InfiniteFuture removes it.
  void Set(Request& request, absl::Time wake);
  // Returns the request whose timer is due first; if several are due at the same time, the one with
  // the lowest key. Null if none is due. Leaves the timer set.
  Request* Due(absl::Time now) const;
  // Earliest timer that is set; InfiniteFuture if none is.
  absl::Time next() const;

 private:
  const RouterCoreOptions& options_;
  std::map<std::pair<absl::Time, RequestKey>, Request*> set_;
};

// State that all parts of the core use. Made by RouterCore. Outlives all objects that get a pointer
// to it.
struct CoreContext {
  explicit CoreContext(RouterCoreOptions o) : options(std::move(o)), timers(options) {}

  const RouterCoreOptions options;
  absl::Time now =
      absl::InfinitePast();  // Time of the present call of RouterCore. The core has no other clock.
  // Made if options.metrics is null.
  const std::unique_ptr<RequestMetrics> own_metrics =
      options.metrics == nullptr ? std::make_unique<RequestMetrics>() : nullptr;
  RequestMetrics* const metrics = own_metrics != nullptr ? own_metrics.get() : options.metrics;
  RouterCounters counters;
  std::vector<CoreAction> actions;  // Actions until the next TakeActions().
  RequestTimers timers;
  Callers callers{options.per_caller, &metrics->callers};
  Forecast forecast;
};

}  // namespace baton
