#include "tests/goodput/plot/axis.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Returns `value` with `digits` significant digits, commas between thousands, and no trailing zeros
// after the point.
std::string Rounded(double value, int digits) {
  if (value == 0) return "0";
  const int whole = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  std::string text = absl::StrFormat("%.*f", std::clamp(digits - whole, 0, 9), value);
  if (text.find('.') != text.npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  if (text == "-0") return "0";
  const size_t point = std::min(text.find('.'), text.size());
  const size_t first = text[0] == '-' ? 1 : 0;
  for (size_t i = point; i > first + 3;) text.insert(i -= 3, 1, ',');
  return text;
}

double StepAtLeast(double step) {
  const double decade = std::pow(10, std::floor(std::log10(step)));
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    if (times * decade >= step * (1 - 1e-9)) return times * decade;
  }
  return 10 * decade;
}

}  // namespace

std::string FormattedValue(double value, Unit unit, int digits) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  switch (unit) {
    case Unit::kNumber:
      return Rounded(value, digits);
    case Unit::kPercent:
      return absl::StrCat(Rounded(100 * value, digits), " %");
    case Unit::kSeconds:
      if (size == 0) return "0 s";
      if (size < 0.9995e-3) return absl::StrCat(Rounded(value * 1e6, digits), " µs");
      if (size < 0.9995) return absl::StrCat(Rounded(value * 1e3, digits), " ms");
      return absl::StrCat(Rounded(value, digits), " s");
    case Unit::kBytes:
      if (size >= 1 << 30) return absl::StrCat(Rounded(value / (1 << 30), digits), " GiB");
      if (size >= 1 << 20) return absl::StrCat(Rounded(value / (1 << 20), digits), " MiB");
      if (size >= 1 << 10) return absl::StrCat(Rounded(value / (1 << 10), digits), " KiB");
      return absl::StrCat(Rounded(value, digits), " B");
  }
  return "";
}

double Axis::Position(double value) const {
  const double part =
      log ? (std::log(std::max(value, low)) - std::log(low)) / (std::log(high) - std::log(low))
          : (value - low) / (high - low);
  return std::clamp(part, 0.0, 1.0);
}

std::vector<Tick> Ticks(const Axis& axis, int max) {
  max = std::max(max, 2);
  std::vector<Tick> ticks;
  const auto add = [&](double value) {
    ticks.push_back({value, FormattedValue(value, axis.unit, 4)});
  };
  if (!axis.log) {
    const double step = StepAtLeast((axis.high - axis.low) / max);
    const double slack = step * 1e-6, first = std::ceil((axis.low - slack) / step);
    // The loop counts the ticks: next to a huge number, adding the step may change nothing, and a
    // loop that compares values only would not end.
    for (int i = 0; i <= max && (first + i) * step <= axis.high + slack; ++i)
      add((first + i) * step);
    return ticks;
  }
  const double decades = std::log10(axis.high / axis.low);
  std::vector<double> times = {1};
  if (decades * 3 <= max) {
    times = {1, 2, 5};
  } else if (decades * 2 <= max) {
    times = {1, 3};
  }
  const int every = std::max(1, static_cast<int>(std::ceil(decades / max)));
  for (int k = static_cast<int>(std::floor(std::log10(axis.low))); std::pow(10, k) <= axis.high;
       ++k) {
    if (k % every != 0) continue;
    for (const double one : times) {
      const double value = one * std::pow(10, k);
      if (value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9)) add(value);
    }
  }
  return ticks;
}

Axis AxisFor(std::string label, Unit unit, bool log, const std::vector<double>& values) {
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value) || (log && value <= 0)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  Axis axis{.label = std::move(label), .unit = unit, .log = log};
  if (log) {
    if (!std::isfinite(low)) low = high = 1;
    axis.low = low / 1.15;
    axis.high = high * 1.15;
    if (axis.high / axis.low < 4) {  // A narrower range might contain no tick.
      const double middle = std::sqrt(axis.low * axis.high);
      axis.low = middle / 2;
      axis.high = middle * 2;
    }
  } else {
    axis.low = std::isfinite(low) ? std::min(0.0, low) : 0;
    const double top = std::isfinite(high) ? std::max(high, axis.low) : 1;
    axis.high = top > axis.low ? axis.low + (top - axis.low) * 1.06 : axis.low + 1;
  }
  return axis;
}

}  // namespace baton
