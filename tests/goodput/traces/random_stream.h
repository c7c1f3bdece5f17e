#pragma once

#include <cstdint>

namespace baton {

// Numbers that depend on the seed alone, on every machine and with every standard library (whose
// own distributions differ). SplitMix64 (Steele, Lea, Flood, 2014). Not for secrets.
class RandomStream {
 public:
  // What a stream is for: streams of one seed never share numbers.
  enum Purpose : uint64_t { kArrivals = 1, kLengths, kPrompts, kBlocks, kDraws, kRows };

  RandomStream(uint64_t seed, Purpose purpose, uint64_t index = 0);

  uint64_t Next();
  uint32_t Below(uint32_t n);  // n > 0
  double Uniform();            // (0, 1]
  double Exponential();        // mean 1
  double Normal();             // mean 0, standard deviation 1
  double Gamma(double shape);  // mean `shape`, scale 1; Marsaglia and Tsang, 2000

 private:
  uint64_t state_;
};

}  // namespace baton
