#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "router/core/router_core.h"

// What the parts of RouterCore share.
namespace baton {

struct Request;

inline uint64_t Micros(absl::Duration d) {
  return d <= absl::ZeroDuration() ? 0 : static_cast<uint64_t>(absl::ToInt64Microseconds(d));
}

// When each request has to be looked at although no event came.
class RequestTimers {
 public:
  explicit RequestTimers(const RouterCoreOptions& options) : options_(options) {}

  // Sets the request's timer to the time at which what it now waits for is due. Callers call this
  // after each change of the request.
  void Update(Request& request);
  void Set(Request& request, absl::Time wake);
  // The request whose timer is due first; of equal ones the one with the lowest key. Null if none
  // is due.
  Request* Due(absl::Time now) const;
  // InfiniteFuture if no timer is set.
  absl::Time next() const;

 private:
  const RouterCoreOptions& options_;
  std::map<std::pair<absl::Time, RequestKey>, Request*> set_;
};

// Made by RouterCore; outlives all that it is handed to.
struct CoreContext {
  explicit CoreContext(RouterCoreOptions o) : options(std::move(o)), timers(options) {
    if (metrics != nullptr) return;
    own_metrics = std::make_unique<RequestMetrics>();
    metrics = own_metrics.get();
  }

  const RouterCoreOptions options;
  absl::Time now =
      absl::InfinitePast();  // of the present call of RouterCore; there is no other clock
  std::unique_ptr<RequestMetrics> own_metrics;  // if the options name none
  RequestMetrics* metrics = options.metrics;
  RouterCounters counters;
  std::vector<CoreAction> actions;  // until TakeActions
  RequestTimers timers;
};

}  // namespace baton
