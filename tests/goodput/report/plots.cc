#include "tests/goodput/report/plots.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/report/phases.h"

namespace baton {
namespace {

constexpr char kRateLabel[] = "offered requests/s";

std::string RateText(double rate) { return FormattedValue(rate, Unit::kNumber); }

std::vector<Probe> ProbesOfMode(const CellMode& mode,
                                std::vector<uint8_t> MeasuredLoad::*outcomes) {
  std::vector<Probe> probes;
  for (const MeasuredLoad& load : mode.loads) {
    if (!load.run.partial || mode.loads.size() == 1)
      probes.push_back({load.run.rate, load.run.seed, load.*outcomes});
  }
  return probes;
}

std::vector<double> Rates(const Cell& cell) {
  std::vector<double> rates = {0};
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) rates.push_back(load.run.rate);
  }
  return rates;
}

Axis RateAxis(const Cell& cell) { return AxisFor(kRateLabel, Unit::kNumber, false, Rates(cell)); }
Axis ShareAxis(std::string label) {
  return {.label = std::move(label), .unit = Unit::kPercent, .low = 0, .high = 1};
}

ChartSeries RateSeries(const CellMode& mode, std::vector<uint8_t> MeasuredLoad::*outcomes,
                       std::string name, int color) {
  ChartSeries series{.name = std::move(name), .color = color, .markers = true};
  for (const RatePoint& point : RatePoints(ProbesOfMode(mode, outcomes))) {
    series.points.push_back(
        {.x = point.rate,
         .y = point.share.value,
         .low = point.share.interval.low,
         .high = point.share.interval.high,
         .tooltip = absl::StrCat(
             series.name, " at ", RateText(point.rate), " requests/s: ",
             PercentText(point.share.value), " (", PercentText(point.share.interval.low), " to ",
             PercentText(point.share.interval.high), ") of ", point.share.count)});
  }
  return series;
}

// A mode, and its load that is shown: the load whose rate is nearest to the cell's reference rate.
struct Shown {
  size_t mode;
  const MeasuredLoad* load;
  std::string name;
};
std::vector<Shown> ShownLoads(const Cell& cell) {
  std::vector<Shown> shown;
  const double rate = cell.ReferenceRate();
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    const MeasuredLoad* load = LoadNear(cell.modes[i], rate);
    if (load == nullptr) continue;
    shown.push_back(
        {i, load, absl::StrCat(cell.modes[i].name, " at ", RateText(load->run.rate), "/s")});
  }
  return shown;
}

// Returns the cumulative distribution of `values` at about 250 points. The values may be in any
// order. Infinite values count, but no point shows them.
std::vector<ChartPoint> Cumulative(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<ChartPoint> points;
  const size_t max = 250, step = std::max<size_t>(1, values.size() / max);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) break;
    const bool last = i + 1 == values.size() || !std::isfinite(values[i + 1]);
    if (i % step == 0 || last)
      points.push_back({.x = values[i], .y = (i + 1.0) / static_cast<double>(values.size())});
  }
  return points;
}

using Latency = double (*)(const RequestRecord&);

SvgCanvas DistributionPlot(const Cell& cell, std::string title, Latency latency, bool needs_pace,
                           const std::optional<double>& target, const std::string& target_name) {
  LineChart chart{.title = std::move(title), .y = ShareAxis("offered requests within")};
  std::vector<double> all;
  for (const Shown& shown : ShownLoads(cell)) {
    std::vector<double> values;
    for (const RequestRecord& record : shown.load->run.records) {
      if (!record.measured) continue;
      const bool completed = record.outcome == Outcome::kCompleted;
      if (completed && needs_pace && record.token_s.size() < 2) continue;
      values.push_back(completed ? latency(record) : INFINITY);
    }
    const int color = ModeColor(cell, shown.mode);
    chart.series.push_back({.name = shown.name,
                            .color = color,
                            .dash = color % 3,
                            .steps = true,
                            .points = Cumulative(std::move(values))});
    for (const ChartPoint& point : chart.series.back().points) all.push_back(point.x);
  }
  if (target) {
    all.push_back(*target);
    chart.x_targets.push_back(
        {*target, absl::StrCat(target_name, " ", FormattedValue(*target, Unit::kSeconds))});
  }
  chart.x = AxisFor("", Unit::kSeconds, true, all);
  return Draw(chart);
}

}  // namespace

namespace {

// If attainment stays above a half, leaves out the lower half of the axis, which would only flatten
// the curves.
void FitShare(LineChart* chart) {
  double min = 1;
  for (const ChartSeries& series : chart->series) {
    for (const ChartPoint& point : series.points)
      min = std::min(min, series.band ? point.low : point.y);
  }
  chart->y.low = min > 0.52 ? 0.5 : 0;
}

}  // namespace

int ModeColor(const Cell& cell, size_t mode) {
  const std::string& name = cell.modes[mode].name;
  if (name == "disaggregated") return 0;
  if (name == "colocated") return 1;
  if (name == "auto") return 2;
  return 3 + static_cast<int>(mode) % (kColors - 3);
}

SvgCanvas AttainmentPlot(const Cell& cell) {
  LineChart chart{.title = "Attainment against offered rate",
                  .x = RateAxis(cell),
                  .y = ShareAxis("requests that met both targets"),
                  .y_targets = {{cell.goal, PercentText(cell.goal)}}};
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    const CellMode& mode = cell.modes[i];
    ChartSeries series = RateSeries(mode, &MeasuredLoad::good, mode.name, ModeColor(cell, i));
    series.band = true;
    chart.series.push_back(std::move(series));
    if (mode.capacity.where == Capacity::Where::kWithin)
      chart.x_targets.push_back({mode.capacity.rate, RateText(mode.capacity.rate)});
  }
  FitShare(&chart);
  return Draw(chart);
}

SvgCanvas TargetsPlot(const Cell& cell, size_t mode) {
  const CellMode& one = cell.modes[mode];
  const int color = ModeColor(cell, mode);
  LineChart chart{.title = absl::StrCat("Which target is lost: ", one.name),
                  .x = RateAxis(cell),
                  .y = ShareAxis("requests that met"),
                  .y_targets = {{cell.goal, PercentText(cell.goal)}}};
  chart.series.push_back(RateSeries(one, &MeasuredLoad::good, "both targets", color));
  chart.series.back().band = true;
  chart.series.push_back(RateSeries(one, &MeasuredLoad::ttft_met, "TTFT alone", 3));
  chart.series.back().dash = 1;
  chart.series.push_back(RateSeries(one, &MeasuredLoad::tpot_met, "TPOT alone", 5));
  chart.series.back().dash = 2;
  FitShare(&chart);
  return Draw(chart);
}

SvgCanvas GoodputPlot(const Cell& cell) {
  LineChart chart{.title = "Goodput against offered rate",
                  .x = RateAxis(cell),
                  .y = {.label = "good requests/s"}};
  chart.y.high = chart.x.high;
  chart.series.push_back({.name = "all offered",
                          .color = 6,
                          .dash = 2,
                          .points = {{0, 0}, {chart.x.high, chart.x.high}}});
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    ChartSeries series =
        RateSeries(cell.modes[i], &MeasuredLoad::good, cell.modes[i].name, ModeColor(cell, i));
    series.band = true;
    for (ChartPoint& point : series.points) {
      point.y *= point.x;
      point.low *= point.x;
      point.high *= point.x;
      point.tooltip = absl::StrCat(series.name, ": ", RateText(point.y), " good of ",
                                   RateText(point.x), " requests/s");
    }
    chart.series.push_back(std::move(series));
  }
  return Draw(chart);
}

SvgCanvas CapacityPlot(const Cell& cell) {
  BarChart chart{.title = absl::StrCat("Highest rate at ", PercentText(cell.goal), " attainment")};
  chart.groups.emplace_back();
  std::vector<double> values;
  for (size_t i = 0; i < cell.modes.size(); ++i) {
    const Capacity& capacity = cell.modes[i].capacity;
    if (capacity.where == Capacity::Where::kUnknown) continue;
    const char* bound = capacity.where == Capacity::Where::kBelow   ? "< "
                        : capacity.where == Capacity::Where::kAbove ? "≥ "
                                                                    : "";
    chart.groups[0].bars.push_back({.label = cell.modes[i].name,
                                    .color = ModeColor(cell, i),
                                    .value = capacity.rate,
                                    .low = capacity.interval.low,
                                    .high = capacity.interval.high,
                                    .text = absl::StrCat(bound, RateText(capacity.rate))});
    values.push_back(capacity.rate);
    values.push_back(capacity.interval.high);
  }
  chart.x = AxisFor("requests/s, with 95 % interval", Unit::kNumber, false, values);
  return Draw(chart);
}

SvgCanvas OverviewPlot(const std::vector<Cell>& cells, const std::string& base) {
  BarChart chart{.title = absl::StrCat("Capacity relative to ", base), .x_targets = {{1, base}}};
  std::vector<double> values = {1};
  for (const Cell& cell : cells) {
    BarGroup group{.label = cell.title};
    for (size_t k = 0; k < cell.modes.size(); ++k) {
      if (cell.modes[k].name != base) continue;
      for (size_t i = 0; i < cell.modes.size(); ++i) {
        const Ratio& ratio = cell.ratios[i][k];
        if (i == k || ratio.value <= 0 || ratio.IsUnknown()) continue;
        group.bars.push_back(
            {.label = cell.modes[i].name,
             .color = ModeColor(cell, i),
             .value = ratio.value,
             .low = ratio.interval.low,
             .high = ratio.interval.high,
             .text =
                 absl::StrCat(ratio.IsOpen() ? RatioText(ratio) : RateText(ratio.value), " ×")});
        values.push_back(ratio.value);
        values.push_back(ratio.interval.high);
      }
    }
    if (!group.bars.empty()) chart.groups.push_back(std::move(group));
  }
  chart.x = AxisFor("times, with 95 % interval", Unit::kNumber, false, values);
  return Draw(chart);
}

SvgCanvas TtftPlot(const Cell& cell) {
  return DistributionPlot(cell, "Time to first token", Ttft, false, cell.targets.ttft_s, "target");
}

SvgCanvas TpotPlot(const Cell& cell) {
  return DistributionPlot(cell, "Time per output token", Tpot, true, cell.targets.tpot_s, "target");
}

SvgCanvas W10Plot(const Cell& cell) {
  std::optional<double> twice;
  if (cell.targets.tpot_s) twice = 2 * *cell.targets.tpot_s;
  return DistributionPlot(cell, "Longest tenth of the gaps (W10)", W10, true, twice, "strict");
}

SvgCanvas ScalePlot(const Cell& cell) {
  LineChart chart{.title = "If both targets were scaled",
                  .x = {.label = "times the targets", .log = true, .low = 0.25, .high = 4},
                  .y = ShareAxis("requests that would have met both"),
                  .x_targets = {{1, "targets"}},
                  .y_targets = {{cell.goal, PercentText(cell.goal)}}};
  for (const Shown& shown : ShownLoads(cell)) {
    const int color = ModeColor(cell, shown.mode);
    ChartSeries series{.name = shown.name, .color = color, .dash = color % 3};
    for (int i = -20; i <= 20; ++i) {
      const double scale = std::pow(2, i / 10.0);
      SloTargets targets = cell.targets;
      for (std::optional<double>* target : {&targets.ttft_s, &targets.tpot_s, &targets.e2e_s}) {
        if (target->has_value()) **target *= scale;
      }
      size_t measured = 0, good = 0;
      for (const RequestRecord& record : shown.load->run.records) {
        if (!record.measured) continue;
        ++measured;
        good += Judge(record, targets).good;
      }
      if (measured > 0)
        series.points.push_back({.x = scale, .y = static_cast<double>(good) / measured});
    }
    chart.series.push_back(std::move(series));
  }
  return Draw(chart);
}

bool HasPhases(const MeasuredLoad& load) { return load.verdict.with_phases > 0; }

SvgCanvas PhasesPlot(const Cell& cell) {
  StackedBars chart{.title = "Mean time by phase"};
  for (size_t phase = 0; phase < kPhases; ++phase) {
    chart.parts.push_back(PhaseName(phase));
    chart.colors.push_back(PhaseColor(phase));
  }
  std::vector<double> sums;
  for (const Shown& shown : ShownLoads(cell)) {
    Course mean{};
    double count = 0;
    for (const RequestRecord& record : shown.load->run.records) {
      if (!record.measured || !record.has_phases || record.outcome != Outcome::kCompleted) continue;
      const Course course = CourseOf(record);
      for (size_t i = 0; i < kPhases; ++i) mean[i] += course[i];
      ++count;
    }
    if (count == 0) continue;
    double sum = 0;
    for (double& part : mean) sum += part /= count;
    sums.push_back(sum);
    chart.bars.push_back({.label = cell.modes[shown.mode].name,
                          .note = absl::StrCat("at ", RateText(shown.load->run.rate), "/s"),
                          .parts = {mean.begin(), mean.end()}});
  }
  chart.x = AxisFor("completed requests, arrival to last token", Unit::kSeconds, false, sums);
  return Draw(chart);
}

SvgCanvas CoursesPlot(const Cell& cell, size_t mode) {
  const MeasuredLoad* load = LoadNear(cell.modes[mode], cell.ReferenceRate());
  StackedBars chart{.title = absl::StrCat("Single requests: ", cell.modes[mode].name)};
  for (size_t phase = 0; phase < kPhases; ++phase) {
    chart.parts.push_back(PhaseName(phase));
    chart.colors.push_back(PhaseColor(phase));
  }
  std::vector<const RequestRecord*> sorted;
  if (load != nullptr) {
    for (const RequestRecord& record : load->run.records) {
      if (record.measured && record.has_phases && record.outcome == Outcome::kCompleted)
        sorted.push_back(&record);
    }
  }
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [](const RequestRecord* a, const RequestRecord* b) { return Ttft(*a) < Ttft(*b); });
  std::vector<double> ends;
  if (cell.targets.ttft_s) {
    ends.push_back(*cell.targets.ttft_s);
    chart.x_targets.push_back({*cell.targets.ttft_s, "TTFT target"});
  }
  const std::pair<const char*, double> kRanks[] = {
      {"P50 of TTFT", 0.5}, {"P90", 0.9}, {"P99", 0.99}, {"slowest", 1}};
  for (const auto& [name, share] : kRanks) {
    if (sorted.empty()) break;
    const size_t rank = static_cast<size_t>(std::ceil(share * sorted.size()));
    const RequestRecord& record = *sorted[std::max<size_t>(rank, 1) - 1];
    const Course course = CourseOf(record);
    chart.bars.push_back({.label = name,
                          .note = absl::StrCat(FormattedValue(Ttft(record), Unit::kSeconds), ", ",
                                               record.prompt_tokens, " tokens"),
                          .parts = {course.begin(), course.end()}});
    ends.push_back(EndToEnd(record));
  }
  chart.x = AxisFor("since the scheduled arrival", Unit::kSeconds, false, ends);
  return Draw(chart);
}

}  // namespace baton
