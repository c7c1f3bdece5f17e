#pragma once

#include "absl/status/status.h"
#include "tests/goodput/load/load_spec.h"

namespace baton {

// The yardstick: sends what the load would send at the times it would, reads every message of every
// stream with gRPC's callback API, and keeps nothing but a count of streams, which it prints. Less
// than this nobody can do who reads the streams at all.
absl::Status ReadBare(const LoadSpec& spec);

}  // namespace baton
