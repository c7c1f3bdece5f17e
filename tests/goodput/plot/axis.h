#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

enum class Unit { kNumber, kPercent, kSeconds, kBytes };

// `value` for a person, with about `digits` significant digits: 0.034 s is "34 ms", 0.905 of
// kPercent is "90.5 %", 12300 is "12,300".
std::string FormattedValue(double value, Unit unit, int digits = 3);

// One axis of a plot: the range it shows and how.
struct Axis {
  std::string label;
  Unit unit = Unit::kNumber;
  bool log = false;  // then `low` is above 0
  double low = 0;
  double high = 1;

  // Where `value` lies: 0 at `low`, 1 at `high`, held inside.
  double Position(double value) const;
};

struct Tick {
  double value;
  std::string label;
};

// At most about `most` ticks inside the range, at 1, 2 or 5 times a power of ten; in decades, where
// a logarithmic axis has many.
std::vector<Tick> Ticks(const Axis& axis, int most);

// An axis that shows all of `values` with some air, from 0 if linear, from above 0 if logarithmic.
// What is not finite, or not positive on a logarithmic axis, does not count.
Axis AxisFor(std::string label, Unit unit, bool log, const std::vector<double>& values);

}  // namespace baton
