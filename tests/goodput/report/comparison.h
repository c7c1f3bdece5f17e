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
  Ratio ratio;                 // 0 where a or b is 0
  std::string text_a, text_b;  // where there is more to tell than the numbers: "at least 8"

  // better, worse, or "no difference shown"; empty where there is nothing to compare: no first
  // value, or a latency of no request.
  std::string Verdict() const;
};

// One mode of one cell in both. The first figure is what it is judged by: capacity where both have
// a curve over rates that tells more than bounds, goodput else: of curves at the highest rate that
// both have, of single loads at the one nearest to the other's reference rate.
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
  // What makes the two unlike: targets, workload, model, goal, rates.
  std::vector<std::string> differences;
  // What speaks against believing one of them: partial, or a load that is invalid.
  std::vector<std::string> doubts;
  bool lost_modes = false;  // the first has a cell or a mode that the second has not

  // Whether the second is shown to be worse, or to have lost a cell or a mode.
  bool FellBeyondNoise() const;
};
// Cells are matched by title; if each side has a single cell, these two are matched. Modes are
// matched by name in the same way. Capacities are those at the goal of `a`.
Comparison Compare(const std::vector<Cell>& a, const std::vector<Cell>& b);

// For people, ends in a newline.
std::string ComparisonText(const Comparison& comparison);
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);

}  // namespace baton
