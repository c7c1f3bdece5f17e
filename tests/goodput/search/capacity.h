#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/search/statistics.h"

namespace baton {

// Outcome of one load at one rate, with one seed.
struct Probe {
  double rate = 0;  // Offered requests/s, above 0.
  // Seed of the arrivals. Equal seeds mean the same arrival log, stretched to the rate.
  uint64_t seed = 0;
  // For each measured request, in order of arrival: 1 if it met its targets.
  std::vector<uint8_t> good;
};

// Attainment at one rate, over all its probes.
struct RatePoint {
  double rate = 0;
  Share share;
  // Attainment on the fitted curve. The curve never rises with the rate; it is an isotonic
  // regression, computed by the pool-adjacent-violators algorithm.
  double fitted = 0;
};
// Returns one point for each rate, in order of rate. Probes without requests do not count.
std::vector<RatePoint> RatePoints(absl::Span<const Probe> probes);

// The highest offered rate at which attainment still reaches the goal (the goodput of DistServe,
// OSDI 2024). It is the point where a logistic curve over the logarithm of the rate crosses the
// goal. The curve is fitted to the rates within a factor of 1.5 of the crossing. The result is
// clamped between the highest rate certainly met and the lowest rate certainly missed.
struct Capacity {
  enum class Where {
    kUnknown,  // No probes were given.
    kBelow,    // Even the lowest rate misses the goal. `rate` is the lowest rate, an upper bound.
    kWithin,   // The capacity is between two measured rates.
    kAbove,    // Even the highest rate reaches the goal. `rate` is the highest rate, a lower bound.
  };
  Where where = Where::kUnknown;
  double rate = 0;  // In requests/s.
  // Begins at 0 if `rate` is only an upper bound, and ends at infinity if `rate` is only a lower
  // bound. Computed by two bootstraps: over blocks of requests within each load, and over whole
  // arrival logs by exponential weights (Rubin, Annals of Statistics 1981). The second is needed
  // because loads of one rate differ by more than the spread of their own requests shows.
  Interval interval;
};

// Returns unknown, below, within or above.
const char* WhereName(Capacity::Where where);

struct Ratio {
  double value = 0;
  // Interval of the paired bootstrap: an effect that an arrival log has on both modes cancels out.
  // The interval begins at 0 or ends at infinity if one of the capacities is only a bound.
  Interval interval;

  bool IsOpen() const { return interval.low <= 0 || std::isinf(interval.high); }
  bool IsUnknown() const { return interval.low <= 0 && std::isinf(interval.high); }
};

// Capacities of several modes under the same arrival logs, and their ratios.
class Capacities {
 public:
  // `modes` has one list of probes for each mode.
  Capacities(const std::vector<std::vector<Probe>>& modes, double goal, int resamples = 1000,
             uint64_t seed = 1);

  const Capacity& of(size_t mode) const { return capacities_[mode]; }
  // Returns the capacity of `mode` divided by the capacity of `base`; 0 if one of the two is
  // unknown.
  Ratio RatioOf(size_t mode, size_t base) const;

 private:
  struct Resample {
    double rate = 0;
    bool at_least = false;  // True if in this resample even the highest rate reached the goal.
  };
  std::vector<Capacity> capacities_;
  std::vector<std::vector<Resample>> resampled_;  // Indexed by [mode][resample].
};

}  // namespace baton
