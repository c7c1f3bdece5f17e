#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/goodput/report/plots.h"

namespace baton {
namespace {

constexpr int kBins = 120;
constexpr double kHeight = 220;

double EndOf(const RunResult& run) {
  double end = run.window_end_s;
  for (const RequestRecord& record : run.records) end = std::max(end, record.ended_s);
  return std::isfinite(end) && end > 0 ? end : 1;
}

LineChart Timeline(std::string title, std::string y, double end_s, const RunResult& run) {
  LineChart chart{.title = std::move(title),
                  .x = {.label = "since the start of the load",
                        .unit = Unit::kSeconds,
                        .low = 0,
                        .high = end_s},
                  .y = {.label = std::move(y)},
                  .height = kHeight};
  chart.x_targets = {{run.window_begin_s, "measured from"}, {run.window_end_s, "to"}};
  return chart;
}

void FitY(LineChart* chart) {
  std::vector<double> values;
  for (const ChartSeries& series : chart->series) {
    for (const ChartPoint& point : series.points) values.push_back(point.y);
  }
  const Axis fitted = AxisFor(chart->y.label, chart->y.unit, false, values);
  chart->y = fitted;
}

SvgCanvas FlightPlot(const RunResult& run, double end_s) {
  LineChart chart = Timeline("Requests", "requests", end_s, run);
  const double bin = end_s / kBins;
  std::vector<double> in_flight(kBins), late(kBins);
  for (const RequestRecord& record : run.records) {
    if (record.scheduled_s < 0 || record.scheduled_s > end_s) continue;
    const double end = record.ended_s < record.scheduled_s ? end_s : record.ended_s;
    const double first = record.token_s.empty() ? end : record.token_s[0];
    const auto at = [&](double seconds) {
      return static_cast<int>(std::clamp(std::ceil(seconds / bin), 0.0, 1.0 * kBins));
    };
    for (int i = at(record.scheduled_s); i < at(end); ++i) ++in_flight[i];
    for (int i = at(record.scheduled_s); i < at(first); ++i) ++late[i];
  }
  ChartSeries open{.name = "in flight", .color = 0, .steps = true};
  ChartSeries waiting{.name = "without a token yet", .color = 1, .dash = 1, .steps = true};
  for (int i = 0; i < kBins; ++i) {
    open.points.push_back({.x = i * bin, .y = in_flight[i]});
    waiting.points.push_back({.x = i * bin, .y = late[i]});
  }
  chart.series = {std::move(open), std::move(waiting)};
  FitY(&chart);
  return Draw(chart);
}

SvgCanvas AttainedPlot(const MeasuredLoad& load, double end_s) {
  LineChart chart = Timeline("Attainment over time", "good, by scheduled arrival", end_s, load.run);
  chart.y = {.label = chart.y.label, .unit = Unit::kPercent, .low = 0, .high = 1};
  const double begin = load.run.window_begin_s;
  const int bins = std::clamp(static_cast<int>(load.good.size() / 20), 1, 30);
  const double bin = (load.run.window_end_s - begin) / bins;
  std::vector<double> offered(bins), good(bins);
  size_t i = 0;
  for (const RequestRecord& record : load.run.records) {
    if (!record.measured) continue;
    const double place = bin > 0 ? (record.scheduled_s - begin) / bin : 0;
    const int at = static_cast<int>(std::clamp(place, 0.0, bins - 1.0));
    ++offered[at];
    good[at] += load.good[i++];
  }
  ChartSeries series{.name = "good of about 20 or more", .color = 2, .markers = true};
  for (int k = 0; k < bins; ++k) {
    if (offered[k] > 0)
      series.points.push_back({.x = begin + (k + 0.5) * bin, .y = good[k] / offered[k]});
  }
  chart.series = {std::move(series)};
  return Draw(chart);
}

// One plot of a server's gauges. A gauge's name decides to which plot it belongs.
struct Gauges {
  const char* title;
  const char* y;
  // A gauge belongs to this plot if its name contains one of these words.
  std::vector<const char*> words;
};

std::string NameOf(const MetricSeries& series) {
  return series.name.substr(0, series.name.find('{'));
}

bool Belongs(const MetricSeries& series, const Gauges& gauges) {
  const std::string name = NameOf(series);
  for (const char* end : {"_total", "_bucket", "_sum", "_count", "_created"}) {
    if (absl::EndsWith(name, end)) return false;
  }
  const auto has = [&](const char* word) { return absl::StrContains(series.name, word); };
  return std::any_of(gauges.words.begin(), gauges.words.end(), has);
}

}  // namespace

std::vector<SvgCanvas> TimelinePlots(const MeasuredLoad& load) {
  const double end_s = EndOf(load.run);
  std::vector<SvgCanvas> plots = {FlightPlot(load.run, end_s), AttainedPlot(load, end_s)};
  const Gauges kAll[] = {{"Queues", "waiting", {"waiting", "queued", "queue_"}},
                         {"Batches", "running", {"running", "batch"}},
                         {"KV cache", "blocks", {"kv_blocks", "kv_cache"}}};
  for (const Gauges& gauges : kAll) {
    LineChart chart = Timeline(gauges.title, gauges.y, end_s, load.run);
    for (const MetricSeries& series : load.run.timeline) {
      if (!Belongs(series, gauges) || series.points.empty()) continue;
      const bool moves = std::any_of(series.points.begin(), series.points.end(),
                                     [&](const auto& point) { return point.second != 0; });
      if (!moves) continue;  // A line that is always zero would hide the others.
      const int color = static_cast<int>(chart.series.size());
      if (color == kColors) break;
      ChartSeries line{.name = absl::StrCat(series.name, " ", series.source),
                       .color = color,
                       .dash = color % 3,
                       .steps = true};
      const size_t step = std::max<size_t>(1, series.points.size() / 600);
      for (size_t i = 0; i < series.points.size(); i += step)
        line.points.push_back({.x = series.points[i].first, .y = series.points[i].second});
      chart.series.push_back(std::move(line));
    }
    if (chart.series.empty()) continue;
    FitY(&chart);
    plots.push_back(Draw(chart));
  }
  return plots;
}

}  // namespace baton
