#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/traces/random_stream.h"

namespace baton {

// How many tokens a prompt or an answer has.
class LengthDistribution {
 public:
  // "128"; "uniform:16,256" (both included); "lognormal:MEDIAN,SIGMA" (sigma of the logarithm);
  // "quantiles:FILE", a table of lines "SHARE TOKENS" with rising shares from 0 to 1, linear
  // between them, '#' for comments. InvalidArgument names what is wrong, a table's line too.
  static absl::StatusOr<LengthDistribution> Parse(absl::string_view text);

  // At least 1, at most kLongest. Takes the same count of numbers from `random` for any length.
  uint32_t Draw(RandomStream* random) const;

  static constexpr uint32_t kLongest = 10'000'000;

 private:
  enum class Kind { kFixed, kUniform, kLognormal, kQuantiles };
  Kind kind_ = Kind::kFixed;
  double a_ = 1, b_ = 0;  // fixed: length; uniform: bounds; lognormal: median, sigma
  std::vector<std::pair<double, double>> table_;  // (share, tokens), both rising
};

}  // namespace baton
