#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/traces/random_stream.h"

namespace baton {

// Distribution of the number of tokens of a prompt or an answer.
class LengthDistribution {
 public:
  // Parses a distribution:
  //   "128"                     a fixed length
  //   "uniform:16,256"          both ends are included
  //   "lognormal:MEDIAN,SIGMA"  sigma of the logarithm
  //   "quantiles:FILE"          a table of lines "SHARE TOKENS" with rising shares from 0 to 1,
  //                             linear between them, '#' for comments
  // InvalidArgument says what is wrong, and on which line of a table.
  static absl::StatusOr<LengthDistribution> Parse(absl::string_view text);

  // Returns a length from 1 to kLongest. Every distribution draws the same count of numbers from
  // `random`.
  uint32_t Draw(RandomStream* random) const;

  static constexpr uint32_t kLongest = 10'000'000;

 private:
  enum class Kind { kFixed, kUniform, kLognormal, kQuantiles };
  Kind kind_ = Kind::kFixed;
  double a_ = 1, b_ = 0;  // Fixed: length. Uniform: bounds. Lognormal: median and sigma.
  // Pairs of share and tokens; both rise from pair to pair.
  std::vector<std::pair<double, double>> table_;
};

}  // namespace baton
