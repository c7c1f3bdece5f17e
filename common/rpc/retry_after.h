#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

// Adds to `status` the time after which it makes sense to try again, as google.rpc.RetryInfo. For
// gRPC clients that retry by themselves, a server also sends it as kRetryPushback.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
// Returns the time that WithRetryAfter() has added; nothing if the status has none.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

// Returns `delay`, changed at random by up to a quarter. Callers that are refused together then do
// not come again together. Any thread.
absl::Duration WithJitter(absl::Duration delay);

// Name of the trailer with the time in whole milliseconds (gRFC A6, "Pushback").
inline constexpr char kRetryPushback[] = "grpc-retry-pushback-ms";

}  // namespace baton
