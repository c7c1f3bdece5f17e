#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

enum class Unit { kNumber, kPercent, kSeconds, kBytes };

// Formats `value` for people, with about `digits` significant digits: 0.034 s is "34 ms", 0.905 as
// kPercent is "90.5 %", 12300 is "12,300".
std::string FormattedValue(double value, Unit unit, int digits = 3);
inline std::string NumberText(double value) { return FormattedValue(value, Unit::kNumber); }
inline std::string SecondsText(double value) { return FormattedValue(value, Unit::kSeconds); }
inline std::string PercentText(double value) { return FormattedValue(value, Unit::kPercent); }

// One axis of a plot: its range, unit and scale.
struct Axis {
  std::string label;
  Unit unit = Unit::kNumber;
  bool log = false;  // Logarithmic scale; `low` must then be above 0.
  double low = 0;
  double high = 1;

  // Returns the position of `value` on the axis: 0 at `low`, 1 at `high`. Values outside of this
  // range are moved to the nearer end.
  double Position(double value) const;
};

struct Tick {
  double value;
  std::string label;
};

// Returns not many more than `max` ticks, all within the range. They are at 1, 2 or 5 times a power
// of ten; on a logarithmic axis of many decades, only at powers of ten.
std::vector<Tick> Ticks(const Axis& axis, int max);

// Returns an axis that shows all of `values` with a margin. A linear axis begins at 0, a
// logarithmic one above 0. Values that are not finite are ignored, and so are values that are not
// positive on a logarithmic axis.
Axis AxisFor(std::string label, Unit unit, bool log, const std::vector<double>& values);

}  // namespace baton
