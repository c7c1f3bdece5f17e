#pragma once

#include "absl/status/status.h"
#include "common/metrics/counter.h"
#include "common/metrics/gauge.h"
#include "common/metrics/histogram.h"
#include "common/metrics/metric_registry.h"

namespace baton {

// What a prefill worker's core counts, under the time that it is told. The loop thread writes, any
// thread reads.
struct PrefillMetrics {
  Histogram step_seconds{SecondsBounds()};
  Histogram step_tokens{TokensBounds()};
  Histogram step_prompts{BatchBounds()};
  Histogram queue_seconds{SecondsBounds()};    // arrival to the first chunk
  Histogram prefill_seconds{SecondsBounds()};  // from then to the first token
  Counter prompt_tokens;
  // Hand-overs by their end: a reader has the KV, nobody came in time, given up, anything else.
  Counter read, expired, cancelled, failed;
  Gauge computing, held, ending;  // leases

  void Ended(const absl::Status& status);
  // `this` outlives the registry's last Text().
  void AddTo(MetricRegistry* registry) const;
};

}  // namespace baton
