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

// What a decode worker's core counts, under the time that it is told. The loop thread writes, any
// thread reads.
struct DecodeMetrics {
  static constexpr int kCodes = 17;  // of gRPC, OK among them

  Histogram step_seconds{SecondsBounds()};
  Histogram step_sequences{BatchBounds()};       // of steps that generate; surplus not among them
  Histogram step_prompt_tokens{TokensBounds()};  // of steps with chunks of prompts
  Counter steps_ahead;                           // started before the one before was known
  Counter surplus_tokens;                        // drawn for sequences that had ended
  Counter generated_tokens;
  Counter prompt_tokens;  // computed here
  Counter preemptions;
  std::array<Counter, kCodes> pulls;
  std::array<Counter, std::size(kLinkNames)> pulled_bytes;  // of pulls that ended with OK
  Histogram pull_hidden{SecondsBounds()}, pull_exposed{SecondsBounds()};

  void Pulled(const PullResult& result);
  // `this` outlives the registry's last Text().
  void AddTo(MetricRegistry* registry) const;
};

}  // namespace baton
