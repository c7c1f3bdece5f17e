#include "tests/goodput/report/cell_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/goodput/plot/axis.h"

namespace baton {
namespace {

size_t RatesOf(const Cell& cell) {
  std::vector<double> rates;
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) rates.push_back(load.run.rate);
  }
  std::sort(rates.begin(), rates.end());
  return std::unique(rates.begin(), rates.end()) - rates.begin();
}

std::string LoadSentence(const CellMode& mode, const MeasuredLoad& load) {
  return absl::StrCat(mode.name, ": ", NumberText(load.verdict.goodput), " good requests/s of ",
                      NumberText(load.verdict.offered_rate), " offered; attainment ",
                      ShareText(load.attainment), " of ", load.attainment.count, ".");
}

// Returns, for example, "1.06 (1.02 to 1.1) times colocated: better".
std::string RatioSentence(const Ratio& ratio, const std::string& base) {
  if (ratio.value <= 0 || ratio.IsUnknown())
    return absl::StrCat("how that compares with ", base, " is not known");
  return absl::StrCat(RatioText(ratio), " times ", base, ": ", RatioVerdict(ratio));
}

// Returns a sentence that says if auto is at least as good as the better of the modes disaggregated
// and colocated.
std::string AutoSentence(const Cell& cell) {
  int automatic = -1, pure = -1;
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    const CellMode& mode = cell.modes[i];
    if (mode.capacity.where == Capacity::Where::kUnknown) continue;
    if (mode.name == "auto") {
      automatic = static_cast<int>(i);
    } else if (mode.name == "disaggregated" || mode.name == "colocated") {
      if (pure < 0 || mode.capacity.rate > cell.modes[pure].capacity.rate)
        pure = static_cast<int>(i);
    }
  }
  if (automatic < 0 || pure < 0 || cell.Best() == automatic) return "";
  const Ratio& ratio = cell.ratios[automatic][pure];
  const std::string text = RatioText(ratio), verdict = RatioVerdict(ratio);
  return absl::StrCat("auto against the better pure mode, ", cell.modes[pure].name, ": ", text,
                      text == verdict ? "" : absl::StrCat(", ", verdict), ".");
}

}  // namespace

std::string CapacityText(const Capacity& capacity) {
  switch (capacity.where) {
    case Capacity::Where::kUnknown:
      return "unknown";
    case Capacity::Where::kBelow:
      return absl::StrCat("less than ", NumberText(capacity.rate));
    case Capacity::Where::kAbove:
      return absl::StrCat("at least ", NumberText(capacity.rate));
    case Capacity::Where::kWithin:
      return absl::StrCat(NumberText(capacity.rate), " (", IntervalText(capacity.interval), ")");
  }
  return "";
}

std::string ConfirmationText(const CellMode& mode) {
  if (mode.confirmed) {
    return absl::StrCat("confirmed: fresh seeds met ", NumberText(mode.confirmed->met),
                        "/s and missed ", NumberText(mode.confirmed->missed), "/s");
  }
  return mode.finished ? "not confirmed" : "search not finished";
}

std::string IntervalText(const Interval& interval) {
  const bool no_low = interval.low <= 0, no_high = std::isinf(interval.high);
  if (no_low && no_high) return "unknown";
  if (no_high) return absl::StrCat("from ", NumberText(interval.low));
  if (no_low) return absl::StrCat("up to ", NumberText(interval.high));
  return absl::StrCat(NumberText(interval.low), " to ", NumberText(interval.high));
}

std::string RatioText(const Ratio& ratio) {
  if (ratio.IsUnknown()) return "unknown";
  if (std::isinf(ratio.interval.high))
    return absl::StrCat("at least ", NumberText(ratio.interval.low));
  if (ratio.interval.low <= 0) return absl::StrCat("at most ", NumberText(ratio.interval.high));
  return absl::StrCat(NumberText(ratio.value), " (", IntervalText(ratio.interval), ")");
}

std::string RatioVerdict(const Ratio& ratio) {
  if (ratio.value <= 0 || ratio.IsUnknown()) return "unknown";
  if (ratio.interval.low > 1) return "better";
  if (ratio.interval.high < 1) return "worse";
  return "no difference shown";
}

std::string ShareText(const Share& share) {
  if (share.count == 0) return "–";
  return absl::StrCat(PercentText(share.value), " (", PercentText(share.interval.low), " to ",
                      PercentText(share.interval.high), ")");
}

std::string TargetsSentence(const SloTargets& targets) {
  std::vector<std::string> parts;
  if (targets.ttft_s) parts.push_back(absl::StrCat("TTFT at most ", SecondsText(*targets.ttft_s)));
  if (targets.tpot_s) parts.push_back(absl::StrCat("TPOT at most ", SecondsText(*targets.tpot_s)));
  if (targets.e2e_s)
    parts.push_back(absl::StrCat("end to end at most ", SecondsText(*targets.e2e_s)));
  return parts.empty() ? "no targets: every completed request is good"
                       : absl::StrJoin(parts, " and ");
}

std::vector<std::string> VerdictSentences(const Cell& cell) {
  std::vector<std::string> sentences;
  const int best = cell.Best();
  if (best < 0 || RatesOf(cell) < 2) {
    for (const CellMode& mode : cell.modes) {
      for (const MeasuredLoad& load : mode.loads) sentences.push_back(LoadSentence(mode, load));
    }
    if (sentences.empty()) sentences.push_back("No load ran to its end.");
    return sentences;
  }
  const CellMode& winner = cell.modes[best];
  std::string first = absl::StrCat(winner.name, " sustains ", CapacityText(winner.capacity),
                                   " requests/s at ", PercentText(cell.goal), " attainment");
  // Names the second-best mode first, and then all others.
  int second = -1;
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    if (static_cast<int>(i) == best || cell.modes[i].capacity.where == Capacity::Where::kUnknown)
      continue;
    if (second < 0 || cell.modes[i].capacity.rate > cell.modes[second].capacity.rate)
      second = static_cast<int>(i);
  }
  if (second >= 0) {
    const Ratio& ratio = cell.ratios[best][second];
    absl::StrAppend(&first, ratio.IsUnknown() ? "; " : ", ",
                    RatioSentence(ratio, cell.modes[second].name));
  }
  sentences.push_back(absl::StrCat(first, "."));
  std::vector<std::string> others;
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    if (static_cast<int>(i) != best)
      others.push_back(absl::StrCat(cell.modes[i].name, " ", CapacityText(cell.modes[i].capacity)));
  }
  if (!others.empty()) sentences.push_back(absl::StrCat(absl::StrJoin(others, ", "), "."));
  const std::string automatic = AutoSentence(cell);
  if (!automatic.empty()) sentences.push_back(automatic);
  return sentences;
}

std::vector<Finding> Findings(const MeasuredLoad& load) {
  std::vector<Finding> findings;
  const RunResult& run = load.run;
  const Verdict& verdict = load.verdict;
  for (const std::string& why : run.invalid) findings.push_back({Weight::kInvalid, why});
  if (run.partial)
    findings.push_back({Weight::kInvalid, "partial: stopped before its last request had ended"});
  const ClientLag& lag = verdict.lag;
  findings.push_back({lag.late > 0 ? Weight::kRemark : Weight::kFine,
                      absl::StrCat("the tool sent ", lag.late, " of ", lag.sent,
                                   " requests more than 1 ms late (P99 ", SecondsText(lag.p99_s),
                                   ", worst ", SecondsText(lag.worst_s), ")")});
  std::vector<std::string> others;
  for (const auto& [outcome, count] : verdict.outcomes) {
    if (outcome != "completed" && count > 0) others.push_back(absl::StrCat(count, " ", outcome));
  }
  if (!others.empty())
    findings.push_back(
        {Weight::kRemark, absl::StrCat("not completed: ", absl::StrJoin(others, ", "))});
  if (run.expect && !run.expect->written) {
    const bool same = run.expect->different + run.expect->failed + run.expect->unknown == 0;
    findings.push_back({same ? Weight::kFine : Weight::kInvalid,
                        absl::StrCat("tokens: ", run.expect->equal, " of ", run.expect->compared,
                                     " answers as expected, ", run.expect->failed, " failed")});
  }
  for (const std::string& remark : run.remarks) findings.push_back({Weight::kRemark, remark});
  return findings;
}

Weight WorstOf(const Cell& cell) {
  Weight worst = cell.partial ? Weight::kInvalid : Weight::kFine;
  for (const CellMode& mode : cell.modes) {
    if (!mode.notes.empty()) worst = std::max(worst, Weight::kRemark);
    for (const MeasuredLoad& load : mode.loads) {
      for (const Finding& finding : Findings(load)) worst = std::max(worst, finding.weight);
    }
  }
  return worst;
}

}  // namespace baton
