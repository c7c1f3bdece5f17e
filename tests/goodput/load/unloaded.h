#pragma once

#include "absl/status/statusor.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Measures the latency of single requests. Sends six requests of the workload's median lengths, one
// after the other, and returns the medians of all but the first. From a prompt file it takes the
// texts nearest to the median length. Answers have 8 to 64 tokens: enough to measure a pace, yet
// soon over. A TPOT of 0 means that no answer had two tokens.
//
// Relative targets multiply this latency. So measure it once, and keep it for all loads under
// comparison.
//
// Fails as RunLoad does, and with FailedPrecondition if a request did not complete.
absl::StatusOr<UnloadedLatency> MeasureUnloaded(const LoadSpec& spec, StopFlag* stop);

}  // namespace baton
