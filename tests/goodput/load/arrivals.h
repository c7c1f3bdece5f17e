#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/traces/random_stream.h"
#include "tests/goodput/traces/trace.h"

namespace baton {

// InvalidArgument for a rate, variation or period that no schedule can have.
absl::Status CheckArrivals(const ArrivalSpec& spec);

// Where a load begins in a trace or prompt file of `rows`: every seed somewhere else.
size_t FirstRow(uint64_t seed, size_t rows);

// The times of one load, one after the other, from the seed alone. Gaps scale with 1 / rate: loads
// of other rates with the same seed are the same arrivals, stretched (on-off: within the same
// periods).
//
// A trace's rate changes from minute to minute. So that a load has the rate that was asked for,
// whichever minutes it replays, as many rows as that rate makes are stretched to the warm-up, as
// many to the window, and so on by windows: what happens within each of them is the trace's.
class Arrivals {
 public:
  // The parts of a load, seconds. Only a trace that has a rate heeds them.
  struct Parts {
    double warmup_s = 0;
    double window_s = 60;
  };
  // `trace` is needed for kTrace only, is replayed from FirstRow() on, and outlives this. `spec`
  // has passed CheckArrivals.
  Arrivals(const ArrivalSpec& spec, const Trace* trace, uint64_t seed, const Parts& parts);

  // Seconds from the start; never less than the one before.
  double Next();

 private:
  double NextOnOff();
  double NextTrace();
  double TraceTime(size_t count) const;
  void NextPart();

  const ArrivalSpec spec_;
  const Parts parts_;
  const Trace* const trace_;
  RandomStream random_;   // gaps
  RandomStream periods_;  // on-off: apart, so that no rate moves them
  double now_s_ = 0;
  double on_left_s_ = 0;  // on-off: of the current on period
  size_t count_ = 0;
  size_t first_row_ = 0;
  size_t part_begin_ = 0, part_end_ = 0;  // of the trace: counts of the part that goes on
  double part_begin_s_ = 0, part_end_s_ = 0;
  std::vector<double> spread_s_;  // of the trace's rows, when equal times are spread
};

}  // namespace baton
