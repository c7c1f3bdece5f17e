#include "tests/goodput/plot/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr double kWidth = 480;
constexpr double kLeft = 12, kRight = 14;
constexpr double kFont = 13, kSmall = 12, kHeading = 15;
constexpr double kRow = 18;  // Height of a row of text, in pixels.

enum class Swatch { kLine, kBox };

struct LegendEntry {
  std::string name;
  int color = 0;
  int dash = 0;
  bool marker = false;
};

// Positions of the legend's entries, row after row, and the number of rows.
struct LegendLayout {
  std::vector<std::pair<double, int>> places;  // Pairs of x in pixels and row.
  std::vector<std::string> names;              // Names of the entries, cut to the width of a row.
  int rows = 0;
};

LegendLayout LayOutLegend(const std::vector<LegendEntry>& entries) {
  constexpr double kSwatch = 28, kGap = 14;
  LegendLayout layout;
  double x = kLeft;
  for (const LegendEntry& entry : entries) {
    layout.names.push_back(FittedText(entry.name, kSmall, kWidth - kLeft - kRight - kSwatch));
    const double width = kSwatch + TextWidth(layout.names.back(), kSmall);
    if (layout.rows == 0 || x + width > kWidth - kRight) {
      ++layout.rows;
      x = kLeft;
    }
    layout.places.push_back({x, layout.rows - 1});
    x += width + kGap;
  }
  return layout;
}

void DrawLegend(SvgCanvas* canvas, const std::vector<LegendEntry>& entries, Swatch swatch,
                double top) {
  const LegendLayout layout = LayOutLegend(entries);
  for (size_t i = 0; i < entries.size(); ++i) {
    const LegendEntry& entry = entries[i];
    const double x = layout.places[i].first;
    const double y = top + layout.places[i].second * kRow + kRow / 2;
    const int color = entry.color % kColors;
    if (swatch == Swatch::kBox) {
      canvas->Rect(x, y - 6, 12, 12, absl::StrCat("f", color));
      canvas->Text(x + 17, y + 4, layout.names[i], "small");
    } else {
      canvas->Line(x, y, x + 22, y, absl::StrCat("line s", color, " dash", entry.dash));
      if (entry.marker) canvas->Marker(x + 11, y, color, absl::StrCat("edge f", color));
      canvas->Text(x + 27, y + 4, layout.names[i], "small");
    }
  }
}

int LegendRows(const std::vector<LegendEntry>& entries) { return LayOutLegend(entries).rows; }

void DrawTitle(SvgCanvas* canvas, const std::string& title) {
  canvas->Text(kLeft, 22, FittedText(title, kHeading, kWidth - kLeft - kRight), "heading");
}
constexpr double kTitleBottom = 32;

bool Inside(const Axis& axis, double value) {
  return std::isfinite(value) && value >= axis.low && value <= axis.high;
}

// Returns ticks of a horizontal axis `pixels` long, so few that their labels do not touch.
std::vector<Tick> HorizontalTicks(const Axis& axis, double pixels) {
  for (int max = 7; max > 2; --max) {
    std::vector<Tick> ticks = Ticks(axis, max);
    bool fits = true;
    for (size_t i = 1; i < ticks.size(); ++i) {
      const double apart =
          pixels * (axis.Position(ticks[i].value) - axis.Position(ticks[i - 1].value));
      const double needed =
          (TextWidth(ticks[i].label, kSmall) + TextWidth(ticks[i - 1].label, kSmall)) / 2 + 8;
      fits = fits && apart >= needed;
    }
    if (fits) return ticks;
  }
  return Ticks(axis, 2);
}

// The rectangle in which the data are drawn.
struct PlotArea {
  double left, top, right, bottom;
  double X(const Axis& axis, double value) const {
    return left + (right - left) * axis.Position(value);
  }
  double Y(const Axis& axis, double value) const {
    return bottom - (bottom - top) * axis.Position(value);
  }
};

void DrawHorizontalAxis(SvgCanvas* canvas, const PlotArea& area, const Axis& axis) {
  for (const Tick& tick : HorizontalTicks(axis, area.right - area.left)) {
    const double x = area.X(axis, tick.value);
    canvas->Line(x, area.top, x, area.bottom, "grid");
    const double half = TextWidth(tick.label, kSmall) / 2;
    canvas->Text(std::clamp(x, half + 2, kWidth - half - 2), area.bottom + 16, tick.label,
                 "soft small", Anchor::kMiddle);
  }
  canvas->Text((area.left + area.right) / 2, area.bottom + 34, axis.label, "soft small",
               Anchor::kMiddle);
}
constexpr double kBelow = 44;  // Height below a plot for its horizontal axis.

// Draws vertical target lines with their labels above the frame. Puts each label in a row of text
// in which it touches no other label. Returns the number of rows. If `canvas` is null, only counts
// the rows.
int PlaceVerticalTargets(SvgCanvas* canvas, const PlotArea& area, const Axis& axis,
                         const std::vector<TargetLine>& targets) {
  std::vector<std::vector<std::pair<double, double>>> rows;
  for (const TargetLine& target : targets) {
    if (!Inside(axis, target.value)) continue;
    const double x = area.X(axis, target.value);
    const double half = TextWidth(target.label, kSmall) / 2;
    const double middle = std::clamp(x, half + 2, kWidth - half - 2);
    size_t row = 0;
    for (; row < rows.size(); ++row) {
      const auto touches = [&](const std::pair<double, double>& other) {
        return middle - half < other.second + 8 && middle + half > other.first - 8;
      };
      if (std::none_of(rows[row].begin(), rows[row].end(), touches)) break;
    }
    if (row == rows.size()) rows.emplace_back();
    rows[row].push_back({middle - half, middle + half});
    if (canvas == nullptr) continue;
    canvas->Line(x, area.top - 3, x, area.bottom, "target");
    canvas->Text(middle, area.top - 7 - row * 15.0, target.label, "target-text", Anchor::kMiddle);
  }
  return static_cast<int>(rows.size());
}

using Points = std::vector<std::pair<double, double>>;

// Converts `points` to pixels. Begins a new run after each value that is not finite.
std::vector<Points> Runs(const LineChart& chart, const ChartSeries& series, const PlotArea& area,
                         double ChartPoint::*y) {
  std::vector<Points> runs(1);
  for (const ChartPoint& point : series.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.*y) || (chart.x.log && point.x <= 0)) {
      if (!runs.back().empty()) runs.emplace_back();
      continue;
    }
    const double px = area.X(chart.x, point.x), py = area.Y(chart.y, point.*y);
    if (series.steps && !runs.back().empty())
      runs.back().push_back({px, runs.back().back().second});
    runs.back().push_back({px, py});
  }
  return runs;
}

void DrawSeries(SvgCanvas* canvas, const LineChart& chart, const ChartSeries& series,
                const PlotArea& area) {
  const int color = series.color % kColors;
  for (const Points& run : Runs(chart, series, area, &ChartPoint::y)) {
    canvas->Path(run, absl::StrCat("line s", color, " dash", series.dash,
                                   series.points.size() > 200 ? " thin" : ""));
  }
  if (!series.markers) return;
  for (const ChartPoint& point : series.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    canvas->Marker(area.X(chart.x, point.x), area.Y(chart.y, point.y), color,
                   absl::StrCat("edge f", color), point.tooltip);
  }
}

void DrawBand(SvgCanvas* canvas, const LineChart& chart, const ChartSeries& series,
              const PlotArea& area) {
  const std::vector<Points> lows = Runs(chart, series, area, &ChartPoint::low);
  const std::vector<Points> highs = Runs(chart, series, area, &ChartPoint::high);
  // Draws no band if the lower edge has other gaps than the upper edge: half a band would be
  // misleading.
  if (lows.size() != highs.size()) return;
  for (size_t i = 0; i < lows.size(); ++i) {
    Points outline = highs[i];
    outline.insert(outline.end(), lows[i].rbegin(), lows[i].rend());
    canvas->Path(outline, absl::StrCat("band f", series.color % kColors), true);
  }
}

}  // namespace

SvgCanvas Draw(const LineChart& chart) {
  std::vector<LegendEntry> legend;
  for (const ChartSeries& series : chart.series) {
    if (!series.name.empty())
      legend.push_back({series.name, series.color, series.dash, series.markers});
  }
  const std::vector<Tick> y_ticks = Ticks(chart.y, chart.height < 220 ? 4 : 6);
  double label_width = 0, target_width = 0;
  for (const Tick& tick : y_ticks)
    label_width = std::max(label_width, TextWidth(tick.label, kSmall));
  for (const TargetLine& target : chart.y_targets) {
    if (Inside(chart.y, target.value))
      target_width = std::max(target_width, TextWidth(target.label, kSmall) + 6);
  }
  PlotArea area{.left = kLeft + label_width + 6, .right = kWidth - kRight - target_width};
  const int target_rows = PlaceVerticalTargets(nullptr, area, chart.x, chart.x_targets);
  const double label_top = kTitleBottom + LegendRows(legend) * kRow;
  area.top = label_top + (chart.y.label.empty() ? 0 : 16) + target_rows * 15.0 + 8;
  // Rows of text above the frame make the picture taller; the height of the frame stays the same.
  const double height = chart.height + (area.top - kTitleBottom - 24);
  area.bottom = height - kBelow;

  SvgCanvas canvas(kWidth, height, chart.title);
  DrawTitle(&canvas, chart.title);
  DrawLegend(&canvas, legend, Swatch::kLine, kTitleBottom);
  if (!chart.y.label.empty()) canvas.Text(kLeft, label_top + 13, chart.y.label, "soft small");
  for (const Tick& tick : y_ticks) {
    const double y = area.Y(chart.y, tick.value);
    canvas.Line(area.left, y, area.right, y, "grid");
    canvas.Text(area.left - 6, y + 4, tick.label, "soft small", Anchor::kEnd);
  }
  DrawHorizontalAxis(&canvas, area, chart.x);
  for (const ChartSeries& series : chart.series) {
    if (series.band) DrawBand(&canvas, chart, series, area);
  }
  for (const TargetLine& target : chart.y_targets) {
    if (!Inside(chart.y, target.value)) continue;
    const double y = area.Y(chart.y, target.value);
    canvas.Line(area.left, y, area.right + 3, y, "target");
    canvas.Text(area.right + 6, y + 4, target.label, "target-text");
  }
  PlaceVerticalTargets(&canvas, area, chart.x, chart.x_targets);
  for (const ChartSeries& series : chart.series) DrawSeries(&canvas, chart, series, area);
  canvas.Line(area.left, area.bottom, area.right, area.bottom, "rule");
  return canvas;
}

SvgCanvas Draw(const BarChart& chart) {
  constexpr double kBar = 20, kPitch = 26, kGroupLabel = 22;
  double label_width = 0, text_width = 0, height = kTitleBottom + 4;
  for (const BarGroup& group : chart.groups) {
    height += (group.label.empty() ? 6 : kGroupLabel) + kPitch * group.bars.size();
    for (const Bar& bar : group.bars) {
      label_width = std::max(label_width, TextWidth(bar.label, kFont));
      text_width = std::max(text_width, TextWidth(bar.text, kSmall));
    }
  }
  label_width = std::min(label_width, kWidth * 0.3);
  PlotArea area{.left = kLeft + label_width + 8,
                .top = kTitleBottom + 4,
                .right = kWidth - kRight - text_width - 8,
                .bottom = height};
  area.right = std::max(area.right, area.left + 80);
  const double target_rows = PlaceVerticalTargets(nullptr, area, chart.x, chart.x_targets) * 15.0;
  area.top += target_rows;
  area.bottom = height += target_rows;
  SvgCanvas canvas(kWidth, height + kBelow, chart.title);
  DrawTitle(&canvas, chart.title);
  DrawHorizontalAxis(&canvas, area, chart.x);
  double y = area.top;
  for (const BarGroup& group : chart.groups) {
    if (group.label.empty()) {
      y += 6;
    } else {
      canvas.Text(kLeft, y + 15, FittedText(group.label, kFont, kWidth - kLeft - kRight), "over");
      y += kGroupLabel;
    }
    for (const Bar& bar : group.bars) {
      const double end = area.X(chart.x, bar.value), middle = y + kBar / 2;
      canvas.Text(area.left - 8, middle + 4, FittedText(bar.label, kFont, label_width), "soft",
                  Anchor::kEnd);
      canvas.Rect(area.left, y, end - area.left, kBar, absl::StrCat("f", bar.color % kColors),
                  absl::StrCat(bar.label, ": ", bar.text));
      double text_x = end;
      if (bar.low < bar.high) {
        const double low = area.X(chart.x, bar.low), high = area.X(chart.x, bar.high);
        for (const char* css : {"halo", "whisker"}) {
          canvas.Line(low, middle, high, middle, css);
          canvas.Line(low, middle - 4, low, middle + 4, css);
          if (std::isfinite(bar.high)) canvas.Line(high, middle - 4, high, middle + 4, css);
        }
        text_x = std::max(text_x, high);
      }
      canvas.Text(text_x + 7, middle + 4, bar.text, "small");
      y += kPitch;
    }
  }
  PlaceVerticalTargets(&canvas, area, chart.x, chart.x_targets);
  canvas.Line(area.left, area.top, area.left, area.bottom, "rule");
  return canvas;
}

SvgCanvas Draw(const StackedBars& chart) {
  constexpr double kBar = 20, kPitch = 36;
  BATON_CHECK(chart.parts.size() == chart.colors.size()) << chart.title;
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < chart.parts.size(); ++i) {
    const auto has = [&](const StackedBar& bar) {
      return i < bar.parts.size() && bar.parts[i] > 0.003 * chart.x.high;
    };
    if (std::any_of(chart.bars.begin(), chart.bars.end(), has))
      legend.push_back({chart.parts[i], chart.colors[i]});
  }
  double label_width = 0;
  for (const StackedBar& bar : chart.bars) {
    label_width = std::max({label_width, TextWidth(bar.label, kFont), TextWidth(bar.note, kSmall)});
  }
  label_width = std::min(label_width, kWidth * 0.36);
  PlotArea area{.left = kLeft + label_width + 8, .right = kWidth - kRight};
  const int target_rows = PlaceVerticalTargets(nullptr, area, chart.x, chart.x_targets);
  area.top = kTitleBottom + LegendRows(legend) * kRow + target_rows * 15.0 + 8;
  area.bottom = area.top + kPitch * chart.bars.size();
  SvgCanvas canvas(kWidth, area.bottom + kBelow, chart.title);
  DrawTitle(&canvas, chart.title);
  DrawLegend(&canvas, legend, Swatch::kBox, kTitleBottom);
  DrawHorizontalAxis(&canvas, area, chart.x);
  double y = area.top + (kPitch - kBar) / 2;
  for (const StackedBar& bar : chart.bars) {
    canvas.Text(area.left - 8, y + (bar.note.empty() ? kBar / 2 + 4 : 6),
                FittedText(bar.label, kFont, label_width), "", Anchor::kEnd);
    if (!bar.note.empty()) {
      canvas.Text(area.left - 8, y + 22, FittedText(bar.note, kSmall, label_width), "soft small",
                  Anchor::kEnd);
    }
    double sum = 0;
    for (size_t i = 0; i < bar.parts.size() && i < chart.parts.size(); ++i) {
      if (!(bar.parts[i] > 0)) continue;
      const double begin = area.X(chart.x, sum);
      sum += bar.parts[i];
      canvas.Rect(begin, y, area.X(chart.x, sum) - begin, kBar,
                  absl::StrCat("edge f", chart.colors[i] % kColors),
                  absl::StrCat(chart.parts[i], ": ", FormattedValue(bar.parts[i], chart.x.unit)));
    }
    y += kPitch;
  }
  PlaceVerticalTargets(&canvas, area, chart.x, chart.x_targets);
  canvas.Line(area.left, area.top, area.left, area.bottom, "rule");
  return canvas;
}

}  // namespace baton
