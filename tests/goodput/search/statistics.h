#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace baton {

// Statistics of a sample of requests. All intervals are 95 % intervals.

struct Interval {
  double low = 0, high = 0;
};

// Returns Wilson's score interval of a share, for `successes` of `trials` independent trials.
// Returns (0, 1) for no trials. Both arguments may be fractions.
Interval WilsonInterval(double successes, double trials);

// Returns the number of successive outcomes that carry as much information as one independent
// outcome: 1 if all are independent, more if misses come in bursts. Computed as 1 + 2 times the sum
// of the autocorrelations, cut off where the sum of two successive ones is no longer positive
// (Geyer, Statistical Science 1992). The result is at most a tenth of the sample.
double AutocorrelationTime(absl::Span<const uint8_t> outcomes);

// The share of outcomes that are not 0, and its 95 % interval. The interval is Wilson's for the
// number of independent trials, because a bootstrap would give 100 of 100 an interval without
// width.
struct Share {
  double value = 0;
  Interval interval;
  size_t count = 0;
};
Share ShareOf(absl::Span<const uint8_t> outcomes);

// Returns the quantile q of sorted values, interpolated linearly between neighbours; 0 for no
// values.
double Quantile(absl::Span<const double> sorted, double q);
// Returns the interval of the middle 95 % of `values`, which may be in any order.
Interval MiddleOf(std::vector<double> values);

// Random numbers that are the same on every machine. The generator's state is so small that each
// purpose can have a generator of its own (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Returns a number from 0 to `bound` - 1; `bound` must be above 0. Two generators in the same
  // state return nearly equal numbers for nearly equal bounds.
  uint64_t Below(uint64_t bound);
  // Returns a number from the exponential law with mean 1.
  double Exponential();

 private:
  uint64_t state_;
};

// Resamples the number of good outcomes of a sample, in blocks, so that correlated outcomes stay
// together (circular block bootstrap; Politis and Romano, 1992).
class BlockSample {
 public:
  // The block length is twice the autocorrelation time, at most a fifth of the sample.
  explicit BlockSample(absl::Span<const uint8_t> outcomes);

  size_t size() const { return sums_.size() - 1; }
  // Returns the number of good outcomes in a resample of size() outcomes, which consists of blocks
  // of `block` outcomes. The random generator `draws` chooses the blocks. Two samples get the same
  // blocks from generators in the same state, so outcomes of the same arrivals stay paired.
  double Draw(Draws* draws, size_t block) const;
  size_t block() const { return block_; }

 private:
  std::vector<uint32_t> sums_;  // sums_[i] is the number of good outcomes among the first i.
  size_t block_ = 1;
};

}  // namespace baton
