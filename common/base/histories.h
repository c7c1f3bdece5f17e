#pragma once

#include <cstdlib>

namespace baton {

// Returns the number of random histories that a test plays: `full` if the environment variable
// BATON_FULL_HISTORIES is set, as `./baton soak --histories` does, or else `normal`. In builds with
// a sanitizer, which play a history ten times as slowly, `normal` holds in both cases.
// tests/sim/historic_faults shows that the normal numbers find the faults of the past.
inline int Histories(int normal, [[maybe_unused]] int full) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return normal;
#else
  return std::getenv("BATON_FULL_HISTORIES") != nullptr ? full : normal;
#endif
}

}  // namespace baton
