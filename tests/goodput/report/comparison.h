#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/axis.h"
#include "tests/goodput/report/cell.h"

namespace baton {

// One figure of two measurements, a and b. The ratio is b / a. The ratio's confidence interval
// comes from a bootstrap over blocks of requests. If both measurements had the same arrivals, each
// resample takes the same blocks of requests from both.
struct ComparedFigure {
  std::string name;
  Unit unit = Unit::kNumber;
  bool more_is_better = true;
  double a = 0, b = 0;
  Ratio ratio;  // 0 if a or b is 0.
  // Shown instead of the number if the figure is only a bound, such as "at least 8".
  std::string text_a, text_b;

  // Returns "better", "worse", "no difference shown" or "unknown". Returns an empty text if `a` is
  // not above 0, or if less is better and `b` is not above 0: such a figure was not measured.
  std::string Verdict() const;
};

// One mode of one cell in two measurements, a and b. The first of `figures` decides the verdict. It
// is the capacity if the ratio of the capacities is known. If capacities were measured but their
// ratio is unknown, it is the goodput at the highest rate that a and b both measured, or the
// capacity if there is no such rate. Without capacities, it is the goodput of a's load nearest to
// its reference rate, compared with b's load nearest to the rate of a's load.
struct ComparedMode {
  std::string cell;
  std::string mode_a, mode_b;
  double rate_a = 0, rate_b = 0;  // Rates of the loads whose latencies are compared.
  std::vector<ComparedFigure> figures;

  // Returns true if the first of `figures` is shown to be worse in the second measurement.
  bool FellBeyondNoise() const;
};

struct Comparison {
  std::vector<ComparedMode> modes;
  std::vector<std::string> unmatched;  // Cells and modes that only one of the two measurements has.
  // Differences in the conditions of the two measurements: targets, workload, model, goal, rates.
  std::vector<std::string> differences;
  // Reasons not to trust one of the two measurements: it is partial, or has an invalid load.
  std::vector<std::string> doubts;
  // True if the first measurement has a cell or a mode that the second lacks.
  bool lost_modes = false;

  // Returns true if the second measurement is shown to be worse than the first, or lacks a cell or
  // a mode that the first one has.
  bool FellBeyondNoise() const;
};
// Compares two measurements. Cells are matched by title, and modes by name. If each measurement has
// a single cell, the two cells are matched whatever their titles, and the same holds for modes.
// Capacities are computed for the goal of `a`.
Comparison Compare(const std::vector<Cell>& a, const std::vector<Cell>& b);

// Returns the comparison for people. Ends in a newline.
std::string ComparisonText(const Comparison& comparison);
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);

}  // namespace baton
