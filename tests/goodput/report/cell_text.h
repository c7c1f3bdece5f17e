#pragma once

#include <string>
#include <vector>

#include "tests/goodput/report/cell.h"

namespace baton {

// What a person is told of a cell, in sentences. Plain text.

// "3.98 (3.85 to 4.1)", with a bound's sign where the capacity was out of reach.
std::string CapacityText(const Capacity& capacity);
// Of a mode that was searched: "confirmed: fresh seeds met 3.8/s and missed 4.2/s", "not
// confirmed", or "search not finished".
std::string ConfirmationText(const CellMode& mode);
// "3.85 to 4.1"; "from 3.85" and "up to 4.1" where the other side is open.
std::string IntervalText(const Interval& interval);
// "1.06 (1.02 to 1.1)"; "at least 1.02", "at most 1.1" or "unknown" where a bound leaves a side
// open.
std::string RatioText(const Ratio& ratio);
// better: the interval lies above 1; worse: below; else "no difference shown", or "unknown".
std::string RatioVerdict(const Ratio& ratio);
std::string ShareText(const Share& share);
// "TTFT at most 250 ms and TPOT at most 50 ms".
std::string TargetsSentence(const SloTargets& targets);

// The result in a few sentences: who sustains most, by how much, and the others; of a single load
// its goodput and attainment.
std::vector<std::string> VerdictSentences(const Cell& cell);

// How bad a finding about a load is.
enum class Weight { kFine, kRemark, kInvalid };
struct Finding {
  Weight weight = Weight::kFine;
  std::string text;
};
// What stands against believing a load, or speaks for it: lateness of the tool, requests that did
// not complete, tokens that differ, and what the load itself has remarked.
std::vector<Finding> Findings(const MeasuredLoad& load);
// Of all loads of the cell, the worst.
Weight WorstOf(const Cell& cell);

}  // namespace baton
