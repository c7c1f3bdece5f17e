#include "tests/goodput/plot/chart.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::HasSubstr;
using testing::Not;

// Compares `drawn` with the file testdata/NAME. With BATON_WRITE_GOLDENS=1 in the environment,
// writes the file before it compares.
void ExpectGolden(const std::string& name, const std::string& drawn) {
  const std::string path = absl::StrCat(BATON_SOURCE_DIR "/tests/goodput/plot/testdata/", name);
  if (std::getenv("BATON_WRITE_GOLDENS") != nullptr) std::ofstream(path) << drawn;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(drawn, golden.str()) << path;
}

LineChart Attainment() {
  LineChart chart{.title = "Attainment against offered rate",
                  .x = AxisFor("offered requests/s", Unit::kNumber, false, {8}),
                  .y = {.label = "requests in time", .unit = Unit::kPercent, .low = 0, .high = 1},
                  .x_targets = {{4.2, "G 4.2"}, {4.6, "G 4.6"}, {50, "outside"}},
                  .y_targets = {{0.9, "90 %"}}};
  chart.series.push_back({.name = "disaggregated",
                          .color = 0,
                          .markers = true,
                          .band = true,
                          .points = {{2, 1, 0.98, 1, "2/s: 100 %"},
                                     {4, 0.93, 0.9, 0.95, "4/s: 93 %"},
                                     {6, 0.4, 0.35, 0.46, "6/s: 40 %"}}});
  chart.series.push_back({.name = "colocated",
                          .color = 1,
                          .dash = 1,
                          .markers = true,
                          .points = {{2, 0.99}, {4, 0.95}, {6, 0.55}}});
  return chart;
}

TEST(ChartTest, LinesWithBandsAndTargets) {
  ExpectGolden("lines.svg", Draw(Attainment()).Standalone());
}

TEST(ChartTest, CumulativeStepsOverALogAxis) {
  LineChart chart{.title = "Time to first token",
                  .x = AxisFor("", Unit::kSeconds, true, {0.012, 3.4}),
                  .y = {.unit = Unit::kPercent},
                  .x_targets = {{0.25, "target 250 ms"}}};
  chart.series.push_back({.name = "auto",
                          .color = 2,
                          .steps = true,
                          .points = {{0.012, 0.25}, {0.05, 0.5}, {0.3, 0.75}, {3.4, 1}}});
  ExpectGolden("cdf.svg", Draw(chart).Standalone());
}

TEST(ChartTest, BarsWithWhiskers) {
  BarChart chart{.title = "Goodput", .x = AxisFor("requests/s", Unit::kNumber, false, {4.6})};
  chart.groups.push_back(
      {"chat",
       {{"disaggregated", 0, 4.2, 4.0, 4.4, "4.2 (4.0–4.4)"}, {"colocated", 1, 3.1, 0, 0, "3.1"}}});
  chart.groups.push_back({"", {{"a mode with a name that has no end", 2, 0, 0, 0.5, "0"}}});
  ExpectGolden("bars.svg", Draw(chart).Standalone());
}

TEST(ChartTest, StackedBarsWithATarget) {
  StackedBars chart{.title = "Course of one request",
                    .x = AxisFor("since its scheduled arrival", Unit::kSeconds, false, {2}),
                    .parts = {"queue", "prefill", "hand-over", "decode"},
                    .colors = {6, 0, 4, 2},
                    .x_targets = {{0.5, "TTFT target"}}};
  chart.bars = {{"P50", "request 17", {0.1, 0.2, 0, 0.9}}, {"P99", "", {0.8, 0.2, 0, 1}}};
  const std::string svg = Draw(chart).Standalone();
  ExpectGolden("stacked.svg", svg);
  EXPECT_THAT(svg, Not(HasSubstr("hand-over")));  // No bar has the part "hand-over".
}

TEST(ChartTest, NothingToShowIsStillAPicture) {
  EXPECT_THAT(Draw(LineChart{.title = "empty"}).Inline(), HasSubstr("empty"));
  EXPECT_THAT(Draw(BarChart{.title = "empty"}).Inline(), HasSubstr("empty"));
  EXPECT_THAT(Draw(StackedBars{.title = "empty"}).Inline(), HasSubstr("empty"));
}

TEST(ChartTest, WhatIsNotFiniteLeavesAGap) {
  LineChart chart{.title = "gap", .x = AxisFor("", Unit::kNumber, false, {4})};
  chart.series.push_back(
      {.name = "s", .points = {{0, 0}, {1, 0.5}, {2, NAN}, {3, 0.5}, {4, INFINITY}, {4, 1}}});
  const std::string svg = Draw(chart).Inline();
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  size_t paths = 0;
  for (size_t at = svg.find("<path"); at != svg.npos; at = svg.find("<path", at + 1)) ++paths;
  EXPECT_EQ(paths, 1u);  // The series with a single point has no line.
}

TEST(ChartTest, NamesAreEscaped) {
  LineChart chart = Attainment();
  chart.title = "<b>&\"";
  chart.series[0].name = "</text><script>";
  chart.series[0].points[0].tooltip = "<&>";
  chart.y_targets[0].label = "<90>";
  const std::string svg = Draw(chart).Inline();
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_THAT(svg, HasSubstr("&lt;90&gt;"));
}

}  // namespace
}  // namespace baton
