#pragma once

#include "absl/status/status.h"
#include "tests/goodput/load/load_spec.h"

namespace baton {

// Baseline of the benchmark. Sends the requests of the load at their times, reads every message of
// every stream with gRPC's callback API, and keeps no records. Prints the number of streams. No
// client that reads the streams can use less processor time. Returns Unavailable if the endpoint
// can't be reached or a stream failed.
absl::Status ReadBare(const LoadSpec& spec);

}  // namespace baton
