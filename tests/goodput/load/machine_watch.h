#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/goodput/results/record.h"

namespace baton {

// From its sending to its last token, seconds.
double WholeRequest(const UnloadedLatency& latency);

// Whether a machine is as fast as when a search began, told by requests that it serves alone. On a
// machine that others use too, a load that met a slow minute says nothing about its rate: it is run
// again. Judged by idle latency only, never by what a load gave. One thread.
class MachineWatch {
 public:
  // `measure(side)` is MeasureUnloaded for one of the `sides` that are compared. `tolerated`: how
  // much longer than at first a request alone may take; 0.2 is a fifth.
  MachineWatch(size_t sides, double tolerated,
               std::function<absl::StatusOr<UnloadedLatency>(size_t side)> measure);

  // What all later measurements are held against: of each side the fastest of three. Fails as
  // `measure`, as the others do.
  absl::Status Begin();
  // Before a load: measures until the side is as fast as at first, at most `most` times and as long
  // as `in_time`. False: it never was.
  absl::StatusOr<bool> WaitUntilSteady(
      size_t side, int most, const std::function<bool()>& in_time = [] { return true; });
  // After a load: whether it still is. A load that does not count is noted for Remark().
  absl::StatusOr<bool> StillSteady(size_t side);

  // What a reader should know, or nothing.
  std::string Remark() const;

 private:
  absl::StatusOr<double> Slowdown(size_t side);

  const double tolerated_;
  const std::function<absl::StatusOr<UnloadedLatency>(size_t)> measure_;
  std::vector<double> first_s_;  // of each side: a whole request
  bool steady_ = false;          // at the last measurement
  int thrown_away_ = 0, waits_ = 0;
  double worst_ = 1;  // times as long as at first
};

}  // namespace baton
