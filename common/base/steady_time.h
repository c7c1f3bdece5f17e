#pragma once

#include "absl/time/time.h"

namespace baton {

// Returns the system time at the first call plus the time that has passed since then on the
// monotonic clock. All code that measures how long something takes uses this function: setting the
// system clock (by NTP, or because a virtual machine was moved) must not end leases or delay
// reports. The value has no meaning in other processes.
absl::Time SteadyNow();

// Returns the time of the system clock. For deadlines that are given to gRPC, and for showing.
absl::Time SystemNow();

// Converts a time of the system clock, such as the deadline of an RPC, to SteadyNow's time, and
// back.
absl::Time ToSteady(absl::Time system);
absl::Time FromSteady(absl::Time steady);

}  // namespace baton
