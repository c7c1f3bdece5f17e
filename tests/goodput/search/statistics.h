#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace baton {

// What a sample of requests lets one say. All intervals are at 95 %.

struct Interval {
  double low = 0, high = 0;
};

// Wilson's score interval of a share, given `successes` of `trials` independent ones; (0, 1) for no
// trials. Neither needs to be whole.
Interval WilsonInterval(double successes, double trials);

// How many successive outcomes say as much as one independent outcome: 1 for independent ones, more
// where misses come in bursts. 1 + 2 sum of autocorrelations, cut where pairs of them stop being
// positive (Geyer, Statistical Science 1992); at most a tenth of the sample.
double AutocorrelationTime(absl::Span<const uint8_t> outcomes);

// The share of outcomes that are not 0, and its interval: Wilson's over as many trials as are
// independent. Not a bootstrap, which would call 100 of 100 certain.
struct Share {
  double value = 0;
  Interval interval;
  size_t count = 0;
};
Share ShareOf(absl::Span<const uint8_t> outcomes);

// From sorted values, between neighbours in proportion; 0 for none.
double Quantile(absl::Span<const double> sorted, double q);
// The middle 95 % of `values`, which may stand in any order.
Interval MiddleOf(std::vector<double> values);

// Random numbers that are the same on every machine, from a state so small that there can be one
// for each purpose (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // From 0 up to below `bound`, which is above 0; nearly equal bounds give nearly equal draws.
  uint64_t Below(uint64_t bound);
  // Of mean 1.
  double Exponential();

 private:
  uint64_t state_;
};

// How often outcomes of a sample are good when it is drawn again in blocks, so that what is
// correlated stays together (circular block bootstrap; Politis and Romano, 1992).
class BlockSample {
 public:
  // A block is twice the autocorrelation time, at most a fifth of the sample.
  explicit BlockSample(absl::Span<const uint8_t> outcomes);

  size_t size() const { return sums_.size() - 1; }
  // The good ones among size() outcomes whose blocks begin at the places that `draws` says. Drawn
  // by generators of one state with equal blocks, samples take the same places: what two modes made
  // of the same arrivals stays paired.
  double Draw(Draws* draws, size_t block) const;
  size_t block() const { return block_; }

 private:
  std::vector<uint32_t> sums_;  // of the first i outcomes
  size_t block_ = 1;
};

}  // namespace baton
