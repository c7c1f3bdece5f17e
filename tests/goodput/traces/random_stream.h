#pragma once

#include <cstdint>

namespace baton {

// Random numbers that depend on the seed alone, on every machine and with every standard library
// (the distributions of standard libraries differ). SplitMix64 (Steele, Lea, Flood, 2014). Not for
// secrets.
class RandomStream {
 public:
  // Purpose of a stream. Streams of one seed for different purposes never share numbers.
  enum Purpose : uint64_t { kArrivals = 1, kLengths, kPrompts, kBlocks, kSamples, kRows };

  RandomStream(uint64_t seed, Purpose purpose, uint64_t index = 0);

  uint64_t Next();
  uint32_t Below(uint32_t n);  // Returns a number from 0 to n - 1; n must be above 0.
  double Uniform();            // Returns a number in (0, 1].
  double Exponential();        // Exponential distribution with mean 1.
  double Normal();             // Normal distribution with mean 0 and standard deviation 1.
  // Gamma distribution with mean `shape` and scale 1 (Marsaglia and Tsang, 2000).
  double Gamma(double shape);

 private:
  uint64_t state_;
};

}  // namespace baton
