#pragma once

#include "absl/status/statusor.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// The latency of one request at a time: six of the workload's median lengths (of a prompt file, the
// texts nearest to it; answers of 8 to 64 tokens, which tell the pace and are soon over), one after
// the other, the first not counted; the medians of the others. Relative targets multiply it, so it
// is measured once and kept for all loads that are to be compared. A TPOT of 0: no answer had two
// tokens.
//
// Fails as RunLoad does, and with FailedPrecondition when a request did not complete.
absl::StatusOr<UnloadedLatency> MeasureUnloaded(const LoadSpec& spec, StopFlag* stop);

}  // namespace baton
