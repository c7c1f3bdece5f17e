#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// How far a load has come; told about once a second.
struct RunProgress {
  double elapsed_s = 0;
  double total_s = 0;  // until the window ends; the tail comes on top
  uint32_t sent = 0;
  uint32_t in_flight = 0;
  uint32_t ended = 0;
  double recent_rate = 0;  // requests sent per second over the last five
  uint32_t measured = 0;   // measured requests that have ended
  uint32_t good = 0;       // of them
};

// InvalidArgument or NotFound for what RunLoad would refuse without asking the router: flags,
// traces, prompt files, rates. OutOfRange when no request falls into the window: by another seed
// one may.
absl::Status CheckLoad(const LoadSpec& spec);

// Runs one load in open loop: the schedule is drawn from the seed before the first request leaves,
// and no answer, late or missing, moves it. Nothing is ever sent twice. Blocks until the last
// measured request has ended, or `stop` is set: then what is open is cancelled, and the result is
// `partial`: its window ends before the first request of which it is open whether it would have met
// its targets.
//
// Unavailable: the endpoint could not be reached within spec.connect_timeout (the message names
// it). Else as CheckLoad. Failures of single
// requests are no failure of the load: they stand in the records.
absl::StatusOr<RunResult> RunLoad(const LoadSpec& spec, StopFlag* stop,
                                  const std::function<void(const RunProgress&)>& on_progress);

}  // namespace baton
