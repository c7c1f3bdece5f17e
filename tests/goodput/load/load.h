#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Progress of a load. Reported about once a second.
struct RunProgress {
  double elapsed_s = 0;
  // Seconds from the start of the load to the end of the measurement window. The tail, which keeps
  // up the load until all measured requests have ended, comes after that.
  double total_s = 0;
  uint32_t sent = 0;
  uint32_t in_flight = 0;
  uint32_t ended = 0;
  double recent_rate = 0;  // Requests sent per second over the last five seconds.
  uint32_t measured = 0;   // Measured requests that have ended.
  uint32_t good = 0;       // Requests counted in `measured` that met their targets.
};

// Makes the checks of RunLoad that need no router: of flags, traces, prompt files and rates.
// Returns InvalidArgument or NotFound if RunLoad would refuse the load. Returns OutOfRange if no
// request falls into the window; the load may be valid with another seed.
absl::Status CheckLoad(const LoadSpec& spec);

// Runs one load in open loop: the seed fixes the schedule before the first request is sent, and
// late or missing answers do not change it. No request is sent twice. Blocks until the last
// measured request has ended or `stop` is set.
//
// Once `stop` is set, open requests are cancelled and the result is `partial`. The window of a
// partial result ends before the first cancelled request that could still have met its targets.
//
// Returns Unavailable, naming the endpoint, if the router could not be reached within
// spec.connect_timeout. Other errors are those of CheckLoad. A single request that fails does not
// fail the load: its record has the status.
absl::StatusOr<RunResult> RunLoad(const LoadSpec& spec, StopFlag* stop,
                                  const std::function<void(const RunProgress&)>& on_progress);

}  // namespace baton
