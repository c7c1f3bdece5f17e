#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/axis.h"
#include "tests/goodput/plot/svg.h"

namespace baton {

// The plots of a report. Each Draw() gives one picture whose text stays readable when a phone
// shows it at three quarters of its size. Legends and labels have rows of their own above the data,
// never on it. Series are told apart by colour, and by marker or dashes too.

// A limit to compare with, dashed across the plot and labelled outside of it.
struct TargetLine {
  double value = 0;
  std::string label;
};

struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // of the band, where the series has one
  std::string tooltip;
};

struct ChartSeries {
  std::string name;  // in the legend; an empty one has no entry
  int color = 0;
  int dash = 0;  // 0 solid, 1 dashed, 2 dotted
  bool markers = false;
  bool band = false;
  bool steps = false;              // y holds until the next x
  std::vector<ChartPoint> points;  // in order of x; those that are not finite leave a gap
};

// Lines over a numeric x: attainment against rate, CDFs (log x, steps), timelines.
struct LineChart {
  std::string title;
  Axis x, y;
  std::vector<ChartSeries> series;
  std::vector<TargetLine> x_targets, y_targets;  // those outside the axis are left out
  double height = 300;
};
SvgCanvas Draw(const LineChart& chart);

struct Bar {
  std::string label;
  int color = 0;
  double value = 0;
  double low = 0, high = 0;  // whiskers, open at infinity; none where low is not below high
  std::string text;          // beside the bar
};
struct BarGroup {
  std::string label;  // a line above its bars; may be empty
  std::vector<Bar> bars;
};
// Horizontal bars from 0, in groups.
struct BarChart {
  std::string title;
  Axis x;  // from 0
  std::vector<BarGroup> groups;
  std::vector<TargetLine> x_targets;  // those outside the axis are left out
};
SvgCanvas Draw(const BarChart& chart);

struct StackedBar {
  std::string label;
  std::string note;           // a second line under the label, soft
  std::vector<double> parts;  // one for each of StackedBars::parts, not negative
};
// Horizontal bars made of parts, from 0: time by phase, the course of one request.
struct StackedBars {
  std::string title;
  Axis x;                          // from 0
  std::vector<std::string> parts;  // names; in the legend stand those that can be seen
  std::vector<int> colors;         // one each
  std::vector<StackedBar> bars;
  std::vector<TargetLine> x_targets;  // those outside the axis are left out
};
SvgCanvas Draw(const StackedBars& chart);

}  // namespace baton
