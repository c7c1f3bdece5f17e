#pragma once

#include <array>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/metrics/counter.h"
#include "common/metrics/histogram.h"
#include "common/metrics/metric_registry.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/transport/link_names.h"

namespace baton {

// Counters and histograms of a decode worker's core. Step times are differences of the `now` that
// RunOnce gets; pull times come from PullResult. The loop thread writes; any thread reads.
struct DecodeMetrics {
  static constexpr int kCodes = 17;  // gRPC status codes, OK included

  Histogram step_seconds{SecondsBounds()};
  // Sequences per step. Counts only steps that generate tokens, and leaves out sequences that have
  // ended.
  Histogram step_sequences{BatchBounds()};
  Histogram step_prompt_tokens{TokensBounds()};  // per step; counts only steps with prompt tokens
  Counter steps_ahead;     // steps started before the tokens of the previous step were known
  Counter surplus_tokens;  // tokens sampled for sequences that had ended
  Counter generated_tokens;
  Counter prompt_tokens;   // tokens of prompts that were computed here
  Counter cached_tokens;   // tokens whose KV was found in the prefix cache
  Counter evicted_blocks;  // blocks that the prefix cache has evicted
  Counter preemptions;
  std::array<Counter, kCodes> pulls;  // pulls by status code
  // Bytes pulled over each transport (kLinkNames). Only pulls that ended with OK are counted.
  std::array<Counter, std::size(kLinkNames)> pulled_bytes;
  Histogram pull_hidden{SecondsBounds()}, pull_exposed{SecondsBounds()};

  // Counts a pull that has ended. Loop thread only.
  void Pulled(const PullResult& result);
  // Registers all metrics. Call it once, before the registry's first Text(). The registry keeps
  // pointers to the members, so this object must outlive the registry's last Text().
  void AddTo(MetricRegistry* registry) const;
};

}  // namespace baton
