#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/search/statistics.h"

namespace baton {

// What is known of attainment at one rate: one load of one seed.
struct Probe {
  double rate = 0;    // offered requests/s, above 0
  uint64_t seed = 0;  // of its arrivals; equal seeds mean the same log, stretched to the rate
  std::vector<uint8_t> good;  // measured requests in order of arrival: met its targets
};

// Attainment at one rate, over all probes of it.
struct RatePoint {
  double rate = 0;
  Share share;
  double fitted = 0;  // as a curve that never rises says (pool adjacent violators)
};
// In order of rate. Probes without requests do not count.
std::vector<RatePoint> RatePoints(absl::Span<const Probe> probes);

// Capacity: the highest offered rate at which attainment still reaches the goal (G of DistServe,
// OSDI 2024), on a logistic curve over the logarithm of the rate through the rates up to a factor
// of 1.5 around the crossing, held between rates that are certain.
struct Capacity {
  enum class Where {
    kUnknown,  // no probes
    kBelow,    // even the lowest rate misses the goal: `rate` is that one, an upper bound
    kWithin,   // between two measured rates
    kAbove,    // even the highest rate reaches it: `rate` is that one, a lower bound
  };
  Where where = Where::kUnknown;
  double rate = 0;  // requests/s
  // From 0 where the capacity is only known to lie below `rate`, up to infinity where it is only
  // known to lie above.
  // By bootstrap: within each load over blocks of requests, and over arrival logs as a whole by
  // exponential weights (Rubin, Annals of Statistics 1981), because loads of one rate differ by
  // more than their own requests tell.
  Interval interval;
};

// unknown, below, within, above.
const char* WhereName(Capacity::Where where);

struct Ratio {
  double value = 0;
  // Of the paired bootstrap: what one arrival log did to both counts once. From 0, or up to
  // infinity, where a capacity that is only a bound leaves that side open.
  Interval interval;

  bool IsOpen() const { return interval.low <= 0 || std::isinf(interval.high); }
  bool IsUnknown() const { return interval.low <= 0 && std::isinf(interval.high); }
};

// Capacities of several modes under the same arrival logs, and their ratios.
class Capacities {
 public:
  // One list of probes for each mode.
  Capacities(const std::vector<std::vector<Probe>>& modes, double goal, int resamples = 1000,
             uint64_t seed = 1);

  const Capacity& of(size_t mode) const { return capacities_[mode]; }
  // Capacity of `mode` over that of `base`; 0 where one has none.
  Ratio RatioOf(size_t mode, size_t base) const;

 private:
  struct Resample {
    double rate = 0;
    bool at_least = false;  // even the highest rate reached the goal
  };
  std::vector<Capacity> capacities_;
  std::vector<std::vector<Resample>> resampled_;  // [mode][resample]
};

}  // namespace baton
