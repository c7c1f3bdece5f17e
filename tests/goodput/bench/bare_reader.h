#pragma once

#include "absl/status/status.h"
#include "tests/goodput/load/load_spec.h"

namespace baton {

// Baseline of the benchmark: the cheapest client that reads every stream. Sends the requests of the
// load at their scheduled times, reads every message with gRPC's callback API, and keeps no
// records. Prints the number of streams. Returns Unavailable if the endpoint can't be reached or a
// stream failed.
absl::Status ReadBare(const LoadSpec& spec);

}  // namespace baton
