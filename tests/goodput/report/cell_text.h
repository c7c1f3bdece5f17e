#pragma once

#include <string>
#include <vector>

#include "tests/goodput/report/cell.h"

namespace baton {

// Sentences that explain a cell (measurements that can be compared) to people, as plain text.

// Returns, for example, "3.98 (3.85 to 4.1)". If the search did not reach the capacity, returns a
// bound such as "at least 8" or "less than 2".
std::string CapacityText(const Capacity& capacity);
// For a mode that was searched, returns "confirmed: fresh seeds met 3.8/s and missed 4.2/s", "not
// confirmed", or "search not finished".
std::string ConfirmationText(const CellMode& mode);
// Returns, for example, "3.85 to 4.1"; or "from 3.85" or "up to 4.1" if one end is infinite or 0.
std::string IntervalText(const Interval& interval);
// Returns, for example, "1.06 (1.02 to 1.1)"; or "at least 1.02", "at most 1.1" or "unknown" if the
// interval has only one end or none.
std::string RatioText(const Ratio& ratio);
// Returns "better" if the interval lies above 1, "worse" if it lies below 1, else "no difference
// shown" or "unknown".
std::string RatioVerdict(const Ratio& ratio);
std::string ShareText(const Share& share);
// Returns, for example, "TTFT at most 250 ms and TPOT at most 50 ms".
std::string TargetsSentence(const SloTargets& targets);

// Describes the result in a few sentences: the best mode, its capacity, its ratio to the
// second-best mode, and the other modes. For a single load: its goodput and attainment.
std::vector<std::string> VerdictSentences(const Cell& cell);

// Severity of a finding about a load.
enum class Weight { kFine, kRemark, kInvalid };
struct Finding {
  Weight weight = Weight::kFine;
  std::string text;
};
// Returns reasons to trust a load or not: lateness of the tool, requests that did not complete,
// tokens that differ, and the load's own remarks.
std::vector<Finding> Findings(const MeasuredLoad& load);
// Returns the greatest severity among the findings about all loads of the cell.
Weight WorstOf(const Cell& cell);

}  // namespace baton
