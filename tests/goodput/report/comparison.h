#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/axis.h"
#include "tests/goodput/report/cell.h"

namespace baton {

// One figure of two measurements. The ratio is b over a. Its interval is a bootstrap over blocks of
// requests, paired if both had the same arrivals.
struct ComparedFigure {
  std::string name;
  Unit unit = Unit::kNumber;
  bool more_is_better = true;
  double a = 0, b = 0;
  Ratio ratio;                 // 0 if a or b is 0.
  std::string text_a, text_b;  // Set if the number alone is not enough: "at least 8".

  // Returns "better", "worse", "no difference shown" or "unknown". Returns an empty text if nothing
  // can be compared: the first value is missing, or no request has this latency.
  std::string Verdict() const;
};

// One mode of one cell in both measurements. The first figure is the one that judges: capacity, if
// both have a curve over rates that tells more than bounds, else goodput. The goodput of curves is
// taken at the highest rate that both have. The goodput of single loads is taken from the first
// measurement's load nearest to its reference rate, and from the second's load nearest to that.
struct ComparedMode {
  std::string cell;
  std::string mode_a, mode_b;
  double rate_a = 0, rate_b = 0;  // Rates of the loads whose latencies are compared.
  std::vector<ComparedFigure> figures;

  // Returns true if the first figure is shown to be worse.
  bool FellBeyondNoise() const;
};

struct Comparison {
  std::vector<ComparedMode> modes;
  std::vector<std::string> unmatched;  // Cells and modes that only one side has.
  // Differences in the terms of the two: targets, workload, model, goal, rates.
  std::vector<std::string> differences;
  // Reasons not to trust one of the two: it is partial, or has an invalid load.
  std::vector<std::string> doubts;
  bool lost_modes = false;  // True if the first has a cell or a mode that the second lacks.

  // Returns true if the second is shown to be worse, or has lost a cell or a mode.
  bool FellBeyondNoise() const;
};
// Cells are matched by title; if each side has a single cell, these two are matched. Modes are
// matched by name in the same way. Capacities are those at the goal of `a`.
Comparison Compare(const std::vector<Cell>& a, const std::vector<Cell>& b);

// Returns the comparison for people. Ends in a newline.
std::string ComparisonText(const Comparison& comparison);
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);

}  // namespace baton
