#include "common/base/steady_time.h"

#include <chrono>

#include "absl/time/time.h"

namespace baton {

absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  struct Start {
    absl::Time system = SystemNow();
    Clock::time_point steady = Clock::now();
  };
  static const Start start;
  return start.system + absl::FromChrono(Clock::now() - start.steady);
}

// absl::Now() is not used: for seconds after the system clock was set back, it returns times that are
// too late.
absl::Time SystemNow() { return absl::FromChrono(std::chrono::system_clock::now()); }

absl::Time ToSteady(absl::Time system) { return SteadyNow() + (system - SystemNow()); }

absl::Time FromSteady(absl::Time steady) { return SystemNow() + (steady - SteadyNow()); }

}  // namespace baton
