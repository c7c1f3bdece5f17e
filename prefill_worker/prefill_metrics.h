#pragma once

#include "absl/status/status.h"
#include "common/metrics/counter.h"
#include "common/metrics/gauge.h"
#include "common/metrics/histogram.h"
#include "common/metrics/metric_registry.h"

namespace baton {

// Counters, histograms and gauges of a prefill worker's core. Times are measured with the clock
// that RunOnce gets as `now`; the time in the queue begins at PrefillJob::arrival. The loop thread
// writes; any thread reads.
struct PrefillMetrics {
  Histogram step_seconds{SecondsBounds()};
  Histogram step_tokens{TokensBounds()};
  Histogram step_prompts{BatchBounds()};
  Histogram queue_seconds{SecondsBounds()};  // time from a prompt's arrival to its first chunk
  // Time from the beginning of a prompt's first chunk to its first token.
  Histogram prefill_seconds{SecondsBounds()};
  Counter prompt_tokens;   // tokens that were computed
  Counter cached_tokens;   // tokens whose KV was found in the prefix cache
  Counter evicted_blocks;  // blocks that the prefix cache has evicted
  // Jobs that have ended because a reader took the KV (read), because the lease ran out (expired),
  // because the job was cancelled, or for another reason (failed).
  Counter read, expired, cancelled, failed;
  Gauge computing, held, ending;  // jobs that hold KV blocks, by state

  // Counts a job that has ended. Loop thread only.
  void Ended(const absl::Status& status);
  // Registers all metrics. Call it once, before the registry's first Text(). The registry keeps
  // pointers to the members, so this object must outlive the registry's last Text().
  void AddTo(MetricRegistry* registry) const;
};

}  // namespace baton
