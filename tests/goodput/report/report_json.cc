#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/report/phases.h"
#include "tests/goodput/report/plots.h"
#include "tests/goodput/report/report.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

json Ms(const std::optional<double>& seconds) { return seconds ? json(*seconds * 1e3) : json(); }

json PercentilesJson(const Percentiles& of) {
  return {{"count", of.count},   {"mean", of.mean * 1e3}, {"p50", of.p50 * 1e3},
          {"p90", of.p90 * 1e3}, {"p99", of.p99 * 1e3},   {"max", of.max * 1e3}};
}

json ShareJson(const Share& share) {
  return {{"value", share.value},
          {"low", share.interval.low},
          {"high", share.interval.high},
          {"requests", share.count}};
}

json LossesJson(const MeasuredLoad& load) {
  const LossTable table = LossesOf(load.run);
  json losses = json::object();
  for (size_t loss = 0; loss < kLosses; ++loss) {
    if (table.Total(loss) > 0) losses[LossName(loss)] = table.counts[loss];
  }
  return {{"lost", table.lost}, {"offered_by_quartile", table.offered}, {"by_quartile", losses}};
}

json MeanCourseJson(const MeasuredLoad& load) {
  Course mean{};
  double count = 0;
  for (const RequestRecord& record : load.run.records) {
    if (!record.measured || !record.has_phases || record.outcome != Outcome::kCompleted) continue;
    const Course course = CourseOf(record);
    for (size_t i = 0; i < kPhases; ++i) mean[i] += course[i];
    ++count;
  }
  json phases = json::object();
  for (size_t i = 0; i < kPhases && count > 0; ++i) phases[PhaseName(i)] = mean[i] / count * 1e3;
  return phases;
}

json LoadJson(const MeasuredLoad& load) {
  const Verdict& verdict = load.verdict;
  json quartiles = json::array();
  for (const PromptQuartile& quartile : verdict.quartiles) {
    quartiles.push_back({{"shortest_tokens", quartile.shortest_tokens},
                         {"longest_tokens", quartile.longest_tokens},
                         {"offered", quartile.offered},
                         {"good", quartile.good}});
  }
  json findings = json::array();
  for (const Finding& finding : Findings(load)) findings.push_back(finding.text);
  return {{"rate", load.run.rate},
          {"seed", load.run.seed},
          {"purpose", load.purpose},
          {"partial", load.run.partial},
          {"window_s", verdict.window_s},
          {"offered", verdict.offered},
          {"good", verdict.good},
          {"goodput", verdict.goodput},
          {"strict_goodput", verdict.strict_goodput},
          {"token_goodput", verdict.token_goodput},
          {"attainment", ShareJson(load.attainment)},
          {"ttft_attainment", ShareJson(load.ttft_share)},
          {"tpot_attainment", ShareJson(load.tpot_share)},
          {"ttft_ms", PercentilesJson(verdict.ttft)},
          {"tpot_ms", PercentilesJson(verdict.tpot)},
          {"w10_ms", PercentilesJson(verdict.w10)},
          {"e2e_ms", PercentilesJson(verdict.e2e)},
          {"prompt_quartiles", std::move(quartiles)},
          {"mean_phases_ms", MeanCourseJson(load)},
          {"losses", LossesJson(load)},
          {"outcomes", verdict.outcomes},
          {"findings", std::move(findings)}};
}

json ModeJson(const Cell& cell, size_t mode) {
  const CellMode& one = cell.modes[mode];
  json loads = json::array(), ratios = json::object();
  for (const MeasuredLoad& load : one.loads) loads.push_back(LoadJson(load));
  for (size_t base = 0; base < cell.modes.size(); ++base) {
    const Ratio& ratio = cell.ratios[mode][base];
    if (base == mode || ratio.value <= 0) continue;
    ratios[cell.modes[base].name] = {{"ratio", ratio.value},
                                     {"low", ratio.interval.low},
                                     {"high", ratio.interval.high},
                                     {"verdict", RatioVerdict(ratio)}};
  }
  return {{"name", one.name},
          {"capacity",
           {{"where", WhereName(one.capacity.where)},
            {"rate", one.capacity.rate},
            {"low", one.capacity.interval.low},
            {"high", one.capacity.interval.high}}},
          {"searched", one.searched},
          {"finished", one.finished},
          {"confirmed", one.confirmed.has_value()},
          {"notes", one.notes},
          {"ratios", std::move(ratios)},
          {"loads", std::move(loads)}};
}

// Converts a title to a part of a file's name.
std::string FileName(absl::string_view title) {
  std::string name;
  for (const char c : title) {
    if (absl::ascii_isalnum(c)) {
      name.push_back(absl::ascii_tolower(c));
    } else if (!name.empty() && name.back() != '-') {
      name.push_back('-');
    }
    if (name.size() >= 40) break;
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

}  // namespace

json ReportJson(const std::vector<Cell>& cells, const ReportOptions& options) {
  json list = json::array();
  for (const Cell& cell : cells) {
    json modes = json::array();
    for (size_t i = 0; i < cell.modes.size(); ++i) modes.push_back(ModeJson(cell, i));
    const int best = cell.Best();
    list.push_back({{"title", cell.title},
                    {"workload", cell.workload},
                    {"model", cell.model},
                    {"targets",
                     {{"name", cell.targets.name},
                      {"source", cell.targets.source},
                      {"ttft_ms", Ms(cell.targets.ttft_s)},
                      {"tpot_ms", Ms(cell.targets.tpot_s)},
                      {"e2e_ms", Ms(cell.targets.e2e_s)}}},
                    {"attainment", cell.goal},
                    {"partial", cell.partial},
                    {"remarks", cell.remarks},
                    {"verdict", VerdictSentences(cell)},
                    {"best", !cell.BestIsShown() ? json() : json(cell.modes[best].name)},
                    {"reference_rate", cell.ReferenceRate()},
                    {"spec", cell.spec},
                    {"modes", std::move(modes)}});
  }
  return {{"baton_goodput_report", 1},
          {"title", options.title},
          {"made_at", options.made_at},
          {"cells", std::move(list)}};
}

std::string BaseMode(const std::vector<Cell>& cells) {
  std::string base;
  for (const Cell& cell : cells) {
    if (cell.modes.size() < 2) continue;
    if (base.empty()) base = cell.modes.back().name;
    for (const CellMode& mode : cell.modes) {
      if (mode.name == "colocated") return mode.name;
    }
  }
  return base;
}

std::vector<std::pair<std::string, SvgCanvas>> KeyPlots(const std::vector<Cell>& cells) {
  std::vector<std::pair<std::string, SvgCanvas>> plots;
  if (cells.size() > 1 && !BaseMode(cells).empty())
    plots.emplace_back("overview.svg", OverviewPlot(cells, BaseMode(cells)));
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string prefix =
        cells.size() == 1 ? "" : absl::StrCat(i + 1, "-", FileName(cells[i].title), "-");
    plots.emplace_back(absl::StrCat(prefix, "attainment.svg"), AttainmentPlot(cells[i]));
    plots.emplace_back(absl::StrCat(prefix, "capacity.svg"), CapacityPlot(cells[i]));
    plots.emplace_back(absl::StrCat(prefix, "goodput.svg"), GoodputPlot(cells[i]));
    plots.emplace_back(absl::StrCat(prefix, "ttft.svg"), TtftPlot(cells[i]));
    plots.emplace_back(absl::StrCat(prefix, "tpot.svg"), TpotPlot(cells[i]));
    plots.emplace_back(absl::StrCat(prefix, "phases.svg"), PhasesPlot(cells[i]));
  }
  return plots;
}

}  // namespace baton
