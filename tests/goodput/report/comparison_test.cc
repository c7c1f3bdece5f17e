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
  // The loads of both measurements have the same requests, so the ratio has no noise.
  EXPECT_NEAR(ttft.ratio.interval.low, 1.5, 1e-4);
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

RunResult Rejecting(RunResult run) {
  for (RequestRecord& record : run.records) {
    record.outcome = Outcome::kRejected;
    record.token_s.clear();
  }
  return run;
}

TEST(ComparisonTest, AServerThatServesNothingHasFallen) {
  const RunResult run = SimulatedRun({.rate = 2, .window_s = 30});
  RunResult unmeasured = run;
  for (RequestRecord& record : unmeasured.records) record.measured = false;
  for (const RunResult& none : {Rejecting(run), unmeasured}) {
    const Comparison compared = Compare(CellOf({run}), CellOf({none}));
    EXPECT_TRUE(compared.modes[0].FellBeyondNoise());
    EXPECT_TRUE(compared.FellBeyondNoise());
    EXPECT_EQ(FigureNamed(compared.modes[0], "goodput, requests/s").Verdict(), "worse");
    // No request has a first token, so TTFT has no verdict.
    EXPECT_EQ(FigureNamed(compared.modes[0], "TTFT P50").Verdict(), "");
    EXPECT_THAT(ComparisonText(compared), HasSubstr("0 worse\n"));
    EXPECT_FALSE(Compare(CellOf({none}), CellOf({run})).FellBeyondNoise());
  }
}

TEST(ComparisonTest, AModeThatIsGoneIsALoss) {
  const RunResult a = SimulatedRun({.mode = "auto", .window_s = 20});
  const RunResult b = SimulatedRun({.mode = "colocated", .window_s = 20});
  EXPECT_TRUE(Compare(CellOf({a, b}), CellOf({a})).FellBeyondNoise());
  EXPECT_FALSE(Compare(CellOf({a}), CellOf({a, b})).FellBeyondNoise());
}

TEST(ComparisonTest, HighestRatesThatWereMetAreNoCapacities) {
  const auto at = [](double rate) {
    RunResult run = SimulatedRun({.mode = "colocated", .rate = rate, .window_s = 60});
    run.targets.ttft_s = run.targets.tpot_s = 1000;
    return run;
  };
  const Comparison compared = Compare(CellOf({at(0.4), at(0.8)}), CellOf({at(0.4), at(0.6)}));
  EXPECT_FALSE(compared.FellBeyondNoise());
  const ComparedFigure& capacity = FigureNamed(compared.modes[0], "capacity at 90 %, requests/s");
  EXPECT_EQ(capacity.Verdict(), "unknown");
  EXPECT_THAT(ComparisonText(compared),
              testing::ContainsRegex("at least 0.8 +at least 0.6 +unknown\n"));
  EXPECT_EQ(compared.modes[0].rate_a, 0.4);  // The highest rate that both measurements have.
  EXPECT_EQ(compared.modes[0].rate_b, 0.4);
  EXPECT_FALSE(Compare(CellOf({at(0.4), at(0.8)}), CellOf({at(0.5), at(0.6)})).FellBeyondNoise());
  // Both measurements meet the goal at all of their rates, but the second has more misses.
  RunResult fewer = at(0.8);
  for (size_t i = 0; i < fewer.records.size(); i += 12)
    fewer.records[i].outcome = Outcome::kRejected;
  EXPECT_TRUE(Compare(CellOf({at(0.4), at(0.8)}), CellOf({at(0.4), fewer})).FellBeyondNoise());
  EXPECT_TRUE(
      Compare(CellOf({at(0.4), at(0.8)}), CellOf({at(0.4), Rejecting(at(0.8))})).FellBeyondNoise());
}

TEST(ComparisonTest, WhatIsUnlikeIsTold) {
  const RunResult a = SimulatedRun({.window_s = 20});
  EXPECT_THAT(Compare(CellOf({a}), CellOf({a})).differences, IsEmpty());
  RunResult b = a;
  b.targets.ttft_s = 15;
  b.spec["prompt_tokens"] = "32";
  b.server.model = "other";
  b.server.fingerprint = "9";
  b.rate = 8;
  std::vector<InputFile> files(1);
  files[0].runs = {b};
  const Comparison compared = Compare(CellOf({a}), CellsOf(files, 0.99));
  EXPECT_THAT(compared.differences,
              ElementsAre(HasSubstr("targets differ: chat, TTFT at most 400 ms"),
                          HasSubstr("workload differs: "), "model differs: demo / other",
                          "fingerprint of the model differs: 0123abcd / 9",
                          "goal differs, both are judged by the first: 90 % / 99 %",
                          "rates of the loads differ: 4/s / 8/s"));
  EXPECT_THAT(ComparisonText(compared), HasSubstr("targets differ: "));
  EXPECT_EQ(ComparisonJson(compared)["differences"].size(), 6u);
}

TEST(ComparisonTest, WhatIsPartialOrInvalidIsTold) {
  const RunResult a = SimulatedRun({.window_s = 20});
  RunResult b = a;
  b.partial = true;
  b.invalid = {"the tool was late"};
  const Comparison compared = Compare(CellOf({a}), CellOf({b}));
  EXPECT_THAT(compared.doubts,
              ElementsAre(HasSubstr("the second is partial: chat"),
                          "the second is invalid: disaggregated at 4/s: the tool was late"));
  EXPECT_THAT(ComparisonText(compared), HasSubstr("the second is partial"));
  EXPECT_THAT(Compare(CellOf({b}), CellOf({a})).doubts, testing::Contains(HasSubstr("the first")));
}

// Every request is good, although high TTFTs come in bursts.
TEST(ComparisonTest, NoiseOfLatenciesIsNoDifferenceWhereAllIsGood) {
  int shown = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const auto run = [&](uint64_t of) {
      RunResult result = SimulatedRun({.rate = 5, .seed = of, .window_s = 120});
      result.targets.ttft_s = result.targets.tpot_s = 1000;
      return result;
    };
    const Comparison compared = Compare(CellOf({run(2 * seed)}), CellOf({run(2 * seed + 1)}));
    shown += FigureNamed(compared.modes[0], "TTFT P90").Verdict() != "no difference shown";
  }
  EXPECT_LE(shown, 1);
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
  // Each measurement has only one mode, so these modes are compared although their names differ.
  const Comparison alone = Compare(CellOf({a}), CellOf({b}));
  EXPECT_THAT(alone.unmatched, IsEmpty());
  EXPECT_EQ(alone.modes[0].mode_b, "colocated");
}

}  // namespace
}  // namespace baton
