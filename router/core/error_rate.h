#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// Counts what a worker made of its requests in the last minute, in steps of ten seconds. A plain
// value, one for each worker. Reads no clock.
class ErrorRate {
 public:
  static constexpr absl::Duration kStep = absl::Seconds(10);
  struct Counts {
    uint64_t requests = 0;  // answered or failed
    uint64_t failed = 0;
  };

  void Add(bool failed, absl::Time now) {
    const int64_t number = StepOf(now);
    Step& step = steps_[static_cast<size_t>(number) % steps_.size()];
    if (step.number != number) step = {.number = number};
    ++step.counts.requests;
    step.counts.failed += failed;
  }
  // Returns the counts of this step and the five before it.
  Counts LastMinute(absl::Time now) const {
    const int64_t number = StepOf(now);
    Counts all;
    for (const Step& step : steps_) {
      if (step.number <= number - static_cast<int64_t>(steps_.size())) continue;
      all.requests += step.counts.requests;
      all.failed += step.counts.failed;
    }
    return all;
  }

 private:
  struct Step {
    int64_t number = -1;
    Counts counts;
  };
  // Times before 1970 count as 1970.
  static int64_t StepOf(absl::Time now) {
    return std::max<int64_t>(0, absl::ToUnixSeconds(now) / absl::ToInt64Seconds(kStep));
  }

  std::array<Step, 6> steps_;
};

}  // namespace baton
