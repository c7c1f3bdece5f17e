#include "common/base/steady_time.h"

#include <chrono>

#include "absl/time/clock.h"

namespace baton {

absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  struct Start {
    absl::Time system = absl::Now();
    Clock::time_point steady = Clock::now();
  };
  static const Start start;
  return start.system + absl::FromChrono(Clock::now() - start.steady);
}

absl::Time ToSteady(absl::Time system) { return SteadyNow() + (system - absl::Now()); }

absl::Time FromSteady(absl::Time steady) { return absl::Now() + (steady - SteadyNow()); }

}  // namespace baton
