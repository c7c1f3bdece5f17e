#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Returns the seconds from sending a request to its last token.
double WholeRequest(const UnloadedLatency& latency);

// Measures if a machine is still as fast as at the beginning of a search, by the latency of
// requests that it serves alone. Other programs may slow the machine down for minutes. The result
// of a load that ran during such minutes is not valid, and the load must run again. Only idle
// latency is judged, never the result of a load. One thread.
class MachineWatch {
 public:
  // `measure(side)` runs MeasureUnloaded for one of the `sides`, the pairs of endpoint and mode
  // that are compared. `tolerated` is the accepted slowdown of a single request since Begin(); 0.2
  // is a fifth.
  MachineWatch(size_t sides, double tolerated,
               std::function<absl::StatusOr<UnloadedLatency>(size_t side)> measure);

  // Measures the reference latency of each side, which is a pair of endpoint and mode. Takes the
  // lowest of three measurements. Begin, WaitUntilSteady and StillSteady return the errors of
  // `measure`.
  absl::Status Begin();
  // Call before a load. Repeats the measurement until `side`, one of the compared modes, is as fast
  // as Begin() measured. Measures at most `max` times, and only while `in_time()` is true. Returns
  // false if no measurement was as fast.
  absl::StatusOr<bool> WaitUntilSteady(
      size_t side, int max, const std::function<bool()>& in_time = [] { return true; });
  // Call after a load. Returns true if `side`, which is an endpoint with a mode, is still as fast
  // as when Begin() measured it. If not, the load does not count, and Remark() mentions it.
  absl::StatusOr<bool> StillSteady(size_t side);

  // Returns a note for the reader of the results, or an empty text.
  std::string Remark() const;

 private:
  absl::StatusOr<double> Slowdown(size_t side);

  const double tolerated_;
  const std::function<absl::StatusOr<UnloadedLatency>(size_t)> measure_;
  std::vector<double> first_s_;  // Reference time of a whole request, per side.
  bool steady_ = false;          // Result of the last measurement.
  int thrown_away_ = 0, waits_ = 0;
  double worst_ = 1;  // Greatest slowdown so far, as a multiple of the reference.
};

}  // namespace baton
