#include "tests/goodput/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/goodput/search/simulated_run.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<Cell> CellOf(std::vector<RunResult> runs) {
  std::vector<InputFile> files(1);
  files[0].runs = std::move(runs);
  return CellsOf(std::move(files), 0.9);
}

RunResult Slower(RunResult run, double times) {
  for (RequestRecord& record : run.records) {
    for (double& token : record.token_s)
      token = record.scheduled_s + times * (token - record.scheduled_s);
  }
  return run;
}

const ComparedFigure& FigureNamed(const ComparedMode& mode, const std::string& name) {
  for (const ComparedFigure& figure : mode.figures) {
    if (figure.name == name) return figure;
  }
  ADD_FAILURE() << name;
  return mode.figures[0];
}

TEST(ComparisonTest, ALoadAgainstItselfIsTheSame) {
  const RunResult run = SimulatedRun({.rate = 3, .window_s = 60});
  const Comparison same = Compare(CellOf({run}), CellOf({run}));
  ASSERT_THAT(same.modes, SizeIs(1));
  EXPECT_THAT(same.unmatched, IsEmpty());
  EXPECT_FALSE(same.modes[0].FellBeyondNoise());
  for (const ComparedFigure& figure : same.modes[0].figures) {
    EXPECT_EQ(figure.ratio.value, 1) << figure.name;
    EXPECT_EQ(figure.ratio.interval.low, 1) << figure.name;
    EXPECT_EQ(figure.ratio.interval.high, 1) << figure.name;
    EXPECT_EQ(figure.Verdict(), "no difference shown") << figure.name;
  }
}

TEST(ComparisonTest, ASlowerServerIsWorseInEveryLatencyAndItsGoodputFell) {
  const RunResult run = SimulatedRun({.rate = 3, .window_s = 120});
  const Comparison compared = Compare(CellOf({run}), CellOf({Slower(run, 1.5)}));
  const ComparedMode& mode = compared.modes[0];
  EXPECT_TRUE(mode.FellBeyondNoise());
  const ComparedFigure& ttft = FigureNamed(mode, "TTFT P50");
  EXPECT_NEAR(ttft.ratio.value, 1.5, 1e-4);
  EXPECT_NEAR(ttft.ratio.interval.low, 1.5, 1e-4);  // the same requests: no noise is left
  EXPECT_EQ(ttft.Verdict(), "worse");
  EXPECT_FALSE(Compare(CellOf({Slower(run, 1.5)}), CellOf({run})).modes[0].FellBeyondNoise());
  EXPECT_THAT(ComparisonText(compared), HasSubstr("TTFT P50"));
  EXPECT_EQ(ComparisonJson(compared)["modes"][0]["fell_beyond_noise"], true);
}

TEST(ComparisonTest, NoiseAloneIsNoLoss) {
  int fell = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const RunResult a = SimulatedRun({.rate = 2, .seed = 2 * seed, .window_s = 60});
    const RunResult b = SimulatedRun({.rate = 2, .seed = 2 * seed + 1, .window_s = 60});
    fell += Compare(CellOf({a}), CellOf({b})).modes[0].FellBeyondNoise();
  }
  EXPECT_LE(fell, 2);
}

TEST(ComparisonTest, CurvesAreJudgedByTheirCapacity) {
  std::vector<RunResult> fast, slow;
  for (const double rate : {2.0, 4.0, 6.0}) {
    const RunResult run = SimulatedRun({.mode = "colocated", .rate = rate, .window_s = 120});
    fast.push_back(run);
    slow.push_back(Slower(run, 1.6));
  }
  const ComparedMode mode = Compare(CellOf(fast), CellOf(slow)).modes[0];
  EXPECT_EQ(mode.figures[0].name, "capacity at 90 %, requests/s");
  EXPECT_LT(mode.figures[0].ratio.value, 1);
}

TEST(ComparisonTest, WhatOnlyOneSideHasIsTold) {
  const RunResult a = SimulatedRun({.mode = "auto", .window_s = 20});
  const RunResult b = SimulatedRun({.mode = "colocated", .window_s = 20});
  EXPECT_THAT(Compare(CellOf({a, b}), CellOf({a})).unmatched,
              ElementsAre(HasSubstr("only the first has: colocated in chat")));
  EXPECT_THAT(Compare(CellOf({a}), CellOf({a, b})).unmatched,
              ElementsAre(HasSubstr("only the second has: colocated in chat")));
  const Comparison alone = Compare(CellOf({a}), CellOf({b}));  // one mode each: compared
  EXPECT_THAT(alone.unmatched, IsEmpty());
  EXPECT_EQ(alone.modes[0].mode_b, "colocated");
}

}  // namespace
}  // namespace baton
