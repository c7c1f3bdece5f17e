#pragma once

#include "absl/time/time.h"

namespace baton {

// The system's clock as it stood when the process first asked, moved on by a clock that nobody
// sets. Whatever measures how long something takes goes by it: a system clock that is set (NTP, a
// machine that was moved) must not end leases or hold reports back. Of this process alone.
absl::Time SteadyNow();

// Of moments on the system's clock, such as the deadline of an RPC, and back.
absl::Time ToSteady(absl::Time system);
absl::Time FromSteady(absl::Time steady);

}  // namespace baton
