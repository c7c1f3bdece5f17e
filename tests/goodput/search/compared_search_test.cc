#include "tests/goodput/search/compared_search.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::ElementsAre;

// Outcomes of a server that meets every target up to the rate `capacity`, and none above it.
std::vector<uint8_t> Sharp(const ProbePlan& plan, double capacity) {
  return std::vector<uint8_t>(static_cast<size_t>(plan.rate * plan.window_s),
                              plan.rate <= capacity ? 1 : 0);
}

struct Ran {
  std::vector<ComparedSearch::Step> steps;
  std::vector<std::vector<Probe>> probes;
};

Ran RunAll(ComparedSearch* search, const std::vector<double>& capacities) {
  Ran ran;
  ran.probes.resize(capacities.size());
  while (search->Next() && ran.steps.size() < 200) {
    const ComparedSearch::Step step = *search->Next();
    ran.steps.push_back(step);
    const std::vector<uint8_t> good = Sharp(step.plan, capacities[step.mode]);
    ran.probes[step.mode].push_back({step.plan.rate, step.plan.seed, good});
    search->Add(good);
  }
  return ran;
}

TEST(ComparedSearchTest, ModesTakeTurnsWithEqualSeeds) {
  ComparedSearch search(3, {.first_rate = 1, .probe_s = 100, .longest_s = 100});
  const Ran ran = RunAll(&search, {5.3, 4.1, 6.8});
  for (size_t i = 0; i < 18; ++i) {
    EXPECT_EQ(ran.steps[i].mode, i % 3);
    EXPECT_EQ(ran.steps[i].plan.seed, 1 + i / 3);
  }
}

TEST(ComparedSearchTest, EndsWithAllModesAtTheBestCapacityUnderOneSeed) {
  ComparedSearch search(2, {.first_rate = 1, .probe_s = 100, .longest_s = 100});
  const Ran ran = RunAll(&search, {5.3, 4.1});
  ASSERT_GT(ran.steps.size(), 2u);
  const auto& a = ran.steps[ran.steps.size() - 2];
  const auto& b = ran.steps.back();
  EXPECT_EQ(a.plan.purpose, ProbePlan::Purpose::kSameRate);
  EXPECT_EQ(b.plan.purpose, ProbePlan::Purpose::kSameRate);
  EXPECT_EQ(a.mode, 0u);
  EXPECT_EQ(b.mode, 1u);
  EXPECT_EQ(a.plan.seed, b.plan.seed);
  EXPECT_EQ(a.plan.rate, b.plan.rate);
  EXPECT_NEAR(a.plan.rate, 5.3, 0.2);
  const Capacities found(ran.probes, 0.9);
  EXPECT_NEAR(found.of(0).rate, 5.3, 0.17);
  EXPECT_NEAR(found.of(1).rate, 4.1, 0.13);
  EXPECT_NEAR(found.RatioOf(0, 1).value, 5.3 / 4.1, 0.07);
  EXPECT_GT(found.RatioOf(0, 1).interval.low, 1);
}

TEST(ComparedSearchTest, OneModeAloneHasNoLastRound) {
  ComparedSearch search(1, {.first_rate = 1, .probe_s = 100, .longest_s = 100});
  const Ran ran = RunAll(&search, {3});
  EXPECT_EQ(ran.steps.back().plan.purpose, ProbePlan::Purpose::kConfirmAbove);
  EXPECT_EQ(search.WindowsLeft().high, 0);
}

TEST(ComparedSearchTest, NoModeThatReachesTheGoalHasNoLastRound) {
  ComparedSearch search(2, {.first_rate = 1, .min_rate = 0.2, .probe_s = 100, .longest_s = 100});
  const Ran ran = RunAll(&search, {0, 0});
  EXPECT_NE(ran.steps.back().plan.purpose, ProbePlan::Purpose::kSameRate);
}

TEST(ComparedSearchTest, TheForecastCountsAllModes) {
  const SearchOptions options{.first_rate = 4, .probe_s = 60, .longest_s = 240};
  const Interval one = ComparedSearch(1, options).WindowsLeft();
  const Interval three = ComparedSearch(3, options).WindowsLeft();
  EXPECT_GT(three.low, 3 * one.low);
  EXPECT_GT(three.high, 3 * one.high);
  EXPECT_GT(ComparedSearch(3, options).LoadsLeft().low, 10);
}

}  // namespace
}  // namespace baton
