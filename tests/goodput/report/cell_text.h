#pragma once

#include <string>
#include <vector>

#include "tests/goodput/report/cell.h"

namespace baton {

// Sentences that explain a cell to people, as plain text.

// Returns "3.98 (3.85 to 4.1)", or "at least 8" or "less than 2" if the capacity was out of reach.
std::string CapacityText(const Capacity& capacity);
// For a mode that was searched, returns "confirmed: fresh seeds met 3.8/s and missed 4.2/s", "not
// confirmed", or "search not finished".
std::string ConfirmationText(const CellMode& mode);
// Returns "3.85 to 4.1", or "from 3.85" or "up to 4.1" if the other side is open.
std::string IntervalText(const Interval& interval);
// Returns "1.06 (1.02 to 1.1)", or "at least 1.02", "at most 1.1" or "unknown" if a bound leaves a
// side open.
std::string RatioText(const Ratio& ratio);
// Returns "better" if the interval lies above 1, "worse" if it lies below 1, else "no difference
// shown" or "unknown".
std::string RatioVerdict(const Ratio& ratio);
std::string ShareText(const Share& share);
// Returns, for example, "TTFT at most 250 ms and TPOT at most 50 ms".
std::string TargetsSentence(const SloTargets& targets);

// Describes the result in a few sentences: the mode that sustains most, by how much, and the
// others. For a single load: its goodput and attainment.
std::vector<std::string> VerdictSentences(const Cell& cell);

// Severity of a finding about a load.
enum class Weight { kFine, kRemark, kInvalid };
struct Finding {
  Weight weight = Weight::kFine;
  std::string text;
};
// Returns what speaks for or against trusting a load: lateness of the tool, requests that did not
// complete, tokens that differ, and the load's own remarks.
std::vector<Finding> Findings(const MeasuredLoad& load);
// Returns the worst finding about any load of the cell.
Weight WorstOf(const Cell& cell);

}  // namespace baton
