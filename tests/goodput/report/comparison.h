#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/axis.h"
#include "tests/goodput/report/cell.h"

namespace baton {

// One figure of two measurements. The ratio is b over a, its interval by bootstrap over blocks of
// requests, paired where both had the same arrivals.
struct ComparedFigure {
  std::string name;
  Unit unit = Unit::kNumber;
  bool more_is_better = true;
  double a = 0, b = 0;
  Ratio ratio;  // 0 where a is 0

  // better, worse, or "no difference shown".
  std::string Verdict() const;
};

// One mode of one cell in both. The first figure is what it is judged by: capacity where both have
// a curve over rates, goodput at the load nearest to the other's reference rate else.
struct ComparedMode {
  std::string cell;
  std::string mode_a, mode_b;
  double rate_a = 0, rate_b = 0;  // of the loads whose latencies are compared
  std::vector<ComparedFigure> figures;

  // The first figure's interval lies below 1.
  bool FellBeyondNoise() const;
};

struct Comparison {
  std::vector<ComparedMode> modes;
  std::vector<std::string> unmatched;  // what only one of the two has
};
// Cells are matched by title, or as they are where each side has one; modes likewise by name.
Comparison Compare(const std::vector<Cell>& a, const std::vector<Cell>& b);

// For people, ends in a newline.
std::string ComparisonText(const Comparison& comparison);
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);

}  // namespace baton
