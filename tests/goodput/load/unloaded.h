#pragma once

#include "absl/status/statusor.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Measures the latency of single requests. Sends six requests of the workload's median lengths, one
// after the other, and returns the medians over all but the first. If prompts come from a file, the
// texts nearest to the median length are sent. Answers have 8 to 64 tokens, so that they show a
// pace but end soon. A TPOT of 0 means that no answer had two tokens.
//
// Relative targets multiply this latency. So measure it once, and use it for all loads that are
// compared.
//
// Returns the errors of RunLoad, and FailedPrecondition if a request did not complete.
absl::StatusOr<UnloadedLatency> MeasureUnloaded(const LoadSpec& spec, StopFlag* stop);

}  // namespace baton
