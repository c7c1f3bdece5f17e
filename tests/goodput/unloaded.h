#pragma once

#include "absl/status/statusor.h"
#include "tests/goodput/load_spec.h"
#include "tests/goodput/record.h"
#include "tests/goodput/stop_flag.h"

namespace baton {

// The latency of one request at a time: six of the load's median lengths (texts of a prompt file as
// they are), one after the other, the first not counted; the medians of the others. Relative
// targets multiply it, so it is measured once and kept for all loads that are to be compared.
//
// Fails as RunLoad does, and with FailedPrecondition when a request did not complete.
absl::StatusOr<UnloadedLatency> MeasureUnloaded(const LoadSpec& spec, StopFlag* stop);

}  // namespace baton
