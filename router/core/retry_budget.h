#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// Limits retries to a share of all attempts, so that workers that fail everything do not multiply
// the load. Retries and attempts are counted over the last ten seconds, in steps of one second. (A
// retry budget: Google, Site Reliability Engineering, 2016, chapter 21.) Reads no clock.
class RetryBudget {
 public:
  static constexpr int kSeconds = 10;
  // Max retries, as a share of the attempts, and the number that is allowed in any case.
  static constexpr double kShare = 0.2;
  static constexpr uint64_t kAlways = 10;

  // Counts an attempt.
  void Began(absl::Time now) { ++At(now).attempts; }
  // Returns true, and counts a retry, if another retry is allowed now.
  bool Take(absl::Time now);
  // Undoes a Take() at the time `taken` that has returned true.
  void GiveBack(absl::Time taken);
  // Counts of the last ten seconds, as of the last call of Began() or Take().
  uint64_t attempts() const;
  uint64_t retries() const;

 private:
  struct Second {
    int64_t number = -1;
    uint64_t attempts = 0, retries = 0;
  };
  // Returns the counts of the present second. Drops counts that are too old.
  Second& At(absl::Time now);
  // Returns the place of the counts of a second, which may hold those of another second.
  Second& PlaceOf(int64_t number);

  std::array<Second, kSeconds> seconds_;
};

}  // namespace baton
