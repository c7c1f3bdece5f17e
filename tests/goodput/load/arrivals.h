#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/traces/random_stream.h"
#include "tests/goodput/traces/trace.h"

namespace baton {

// Returns InvalidArgument for a rate, variation or period that no schedule can have.
absl::Status CheckArrivals(const ArrivalSpec& spec);

// Returns the row at which a load begins in a trace or prompt file of `rows` rows. The seed alone
// decides it.
size_t FirstRow(uint64_t seed, size_t rows);

// Arrival times of one load, in order. They depend on the seed alone. Gaps scale with 1 / rate:
// with the same seed, a load at another rate has the same arrivals, stretched. For kOnOff, the
// periods stay the same at every rate, and the arrivals within them are stretched.
//
// A trace's rate changes from minute to minute, but each part of a load must have the rate that was
// asked for. The parts are the warm-up, the measurement window, and, after the window, more parts
// of the window's length. So each part takes the number of rows that its rate and length require,
// stretched to the length of the part. Within a part, the pattern of arrivals is the trace's.
class Arrivals {
 public:
  // Lengths in seconds of the load's warm-up and window. Used only for a trace that is replayed at
  // a chosen rate.
  struct Parts {
    double warmup_s = 0;
    double window_s = 60;
  };
  // `trace` is needed for kTrace only. It must outlive this object, and is replayed from the row
  // FirstRow() on. `spec` must have passed CheckArrivals.
  Arrivals(const ArrivalSpec& spec, const Trace* trace, uint64_t seed, const Parts& parts);

  // Returns the next arrival, in seconds from the start. It is never earlier than the one before.
  double Next();

 private:
  double NextOnOff();
  double NextTrace();
  double TraceTime(size_t count) const;
  void NextPart();

  const ArrivalSpec spec_;
  const Parts parts_;
  const Trace* const trace_;
  RandomStream random_;  // Generates the gaps.
  // For kOnOff: generates the lengths of the on and off periods. A separate stream, so that the
  // periods do not depend on the rate.
  RandomStream periods_;
  double now_s_ = 0;
  double on_left_s_ = 0;  // kOnOff: seconds left of the current on period.
  size_t count_ = 0;
  size_t first_row_ = 0;
  // For kTrace: the current part of the load takes rows [part_begin_, part_end_) of the trace. Row
  // 0 is the first row that is replayed.
  size_t part_begin_ = 0, part_end_ = 0;
  double part_begin_s_ = 0, part_end_s_ = 0;
  std::vector<double> spread_s_;  // kTrace: times of the rows, if `spread` is set; else empty.
};

}  // namespace baton
