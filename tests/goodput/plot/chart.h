#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/axis.h"
#include "tests/goodput/plot/svg.h"

namespace baton {

// The plots of a report. Each Draw() returns one picture. Its text stays readable on a phone that
// shows it at three quarters of its size. Legends and labels stand above the plotted data, never on
// the data. Series differ in colour, and also in marker or dashes.

// A limit for comparison: a dashed line across the plot, with its label outside of the frame.
struct TargetLine {
  double value = 0;
  std::string label;
};

struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // Range of the band, if the series has one.
  std::string tooltip;
};

struct ChartSeries {
  std::string name;  // Name in the legend; without a name the series has no entry.
  int color = 0;
  int dash = 0;  // Style of the line: 0 is solid, 1 dashed, 2 dotted.
  bool markers = false;
  bool band = false;
  bool steps = false;              // True if y stays constant until the next x.
  std::vector<ChartPoint> points;  // In order of x. Points that are not finite leave a gap.
};

// Lines over a numeric x, such as attainment against rate, a cumulative distribution or a timeline.
struct LineChart {
  std::string title;
  Axis x, y;
  std::vector<ChartSeries> series;
  std::vector<TargetLine> x_targets, y_targets;  // Targets outside the axis are left out.
  double height = 300;
};
SvgCanvas Draw(const LineChart& chart);

struct Bar {
  std::string label;
  int color = 0;
  double value = 0;
  // Ends of the whiskers of a bar; an end may be infinite. No whiskers are drawn unless low is
  // below high.
  double low = 0, high = 0;
  std::string text;  // Text beside the bar.
};
struct BarGroup {
  std::string label;  // Line of text above the group's bars; may be empty.
  std::vector<Bar> bars;
};
// Groups of horizontal bars that begin at 0.
struct BarChart {
  std::string title;
  Axis x;  // Begins at 0.
  std::vector<BarGroup> groups;
  std::vector<TargetLine> x_targets;  // Targets outside the axis are left out.
};
SvgCanvas Draw(const BarChart& chart);

struct StackedBar {
  std::string label;
  std::string note;  // Line of text under the label, in a soft colour.
  // Lengths of the bar's parts, not negative; one for each name in StackedBars::parts.
  std::vector<double> parts;
};
// Horizontal bars that begin at 0 and consist of parts, such as the phases of a request.
struct StackedBars {
  std::string title;
  Axis x;  // Begins at 0.
  // Names of the parts. The legend shows only the parts that some bar has.
  std::vector<std::string> parts;
  std::vector<int> colors;  // One colour for each part.
  std::vector<StackedBar> bars;
  std::vector<TargetLine> x_targets;  // Targets outside the axis are left out.
};
SvgCanvas Draw(const StackedBars& chart);

}  // namespace baton
