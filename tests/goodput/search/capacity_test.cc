#include "tests/goodput/search/capacity.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::DoubleNear;
using testing::SizeIs;
using Where = Capacity::Where;

// Returns a probe of `offered` requests with `good` good ones; the misses are evenly spread.
Probe Made(double rate, int good, int offered, uint64_t seed = 1) {
  Probe probe{.rate = rate, .seed = seed};
  for (int i = 0; i < offered; ++i)
    probe.good.push_back((i + 1) * good / offered > i * good / offered);
  return probe;
}

TEST(CapacityTest, LiesOnALogisticCurveOverTheLogarithmOfTheRate) {
  const Capacities found({{Made(4, 80, 100), Made(2, 95, 100), Made(1, 100, 100)}}, 0.9);
  EXPECT_EQ(found.of(0).where, Where::kWithin);
  // The expected curve goes through the attainments at the rates 2 and 4, with half a good and half
  // a bad request added to each.
  const double at_2 = std::log(95.5 / 5.5), at_4 = std::log(80.5 / 20.5), goal = std::log(9);
  EXPECT_NEAR(found.of(0).rate, 2 * std::pow(2, (at_2 - goal) / (at_2 - at_4)), 1e-6);
  EXPECT_LT(found.of(0).interval.low, found.of(0).rate);
  EXPECT_GT(found.of(0).interval.high, found.of(0).rate);
}

TEST(CapacityTest, AttainmentThatRisesIsPooled) {
  const std::vector<Probe> probes = {Made(1, 92, 100), Made(2, 96, 100), Made(4, 70, 100)};
  const std::vector<RatePoint> points = RatePoints(probes);
  ASSERT_THAT(points, SizeIs(3));
  EXPECT_DOUBLE_EQ(points[0].fitted, 0.94);
  EXPECT_DOUBLE_EQ(points[1].fitted, 0.94);
  EXPECT_DOUBLE_EQ(points[1].share.value, 0.96);
  const Capacity found = Capacities({probes}, 0.9, 10).of(0);
  EXPECT_EQ(found.where, Where::kWithin);
  EXPECT_GT(found.rate, 2);
  EXPECT_LT(found.rate, 4);
}

TEST(CapacityTest, OutOfReachIsABoundAndSaysWhich) {
  const Capacities found({{Made(2, 80, 100)}, {Made(2, 95, 100)}, {}, {Probe{.rate = 1}}}, 0.9, 10);
  EXPECT_EQ(found.of(0).where, Where::kBelow);
  // The load at rate 2 misses the goal. The upper bound of the capacity is not lower than 2,
  // because attainment may be high until just below that rate.
  EXPECT_EQ(found.of(0).rate, 2);
  EXPECT_EQ(found.of(0).interval.low, 0);
  EXPECT_EQ(found.of(1).where, Where::kAbove);
  EXPECT_EQ(found.of(1).rate, 2);
  EXPECT_EQ(found.of(1).interval.high, INFINITY);
  EXPECT_EQ(found.of(2).where, Where::kUnknown);
  EXPECT_EQ(found.of(3).where, Where::kUnknown);
  EXPECT_EQ(found.RatioOf(0, 2).value, 0);
}

TEST(CapacityTest, ARatioIsOpenOnTheSideThatABoundLeavesUnknown) {
  const std::vector<Probe> within = {Made(6, 500, 500, 1), Made(8, 400, 500, 2)};
  const std::vector<Probe> above = {Made(4, 500, 500, 3), Made(5, 500, 500, 4)};
  const std::vector<Probe> below = {Made(9, 300, 500, 5)};
  const Capacities found({within, above, below}, 0.9, 100);
  // The capacity of mode 1 is only a lower bound. So a ratio with this capacity as the divisor has
  // no lower end.
  EXPECT_GT(found.RatioOf(0, 1).interval.high, 1.2);
  EXPECT_EQ(found.RatioOf(0, 1).interval.low, 0);
  EXPECT_EQ(found.RatioOf(1, 0).interval.high, INFINITY);
  EXPECT_GT(found.RatioOf(1, 0).interval.low, 0.5);
  EXPECT_GE(found.RatioOf(2, 0).interval.high, 9.0 / 8);
  EXPECT_EQ(found.RatioOf(2, 0).interval.low, 0);
  EXPECT_EQ(found.RatioOf(0, 2).interval.high, INFINITY);
  EXPECT_LE(found.RatioOf(0, 2).interval.low, 8.0 / 9);
  EXPECT_EQ(found.RatioOf(2, 1).interval.low, 0);
  EXPECT_GE(found.RatioOf(2, 1).interval.high, 9.0 / 5);
  const Capacities two({above, {Made(8, 500, 500, 6)}}, 0.9, 100);
  EXPECT_TRUE(two.RatioOf(0, 1).IsUnknown());
  EXPECT_TRUE(two.RatioOf(1, 0).IsUnknown());
}

// At the highest rate, 89 of 100 requests are good, and the goal is 90 %. This miss may be chance.
// So the capacity has no known upper bound.
TEST(CapacityTest, AnIntervalThatReachesTheHighestRateIsOpen) {
  const std::vector<Probe> probes = {Made(4, 500, 500, 1), Made(6, 89, 100, 2)};
  const Capacities found({probes, {Made(4, 500, 500, 3), Made(6, 200, 500, 4)}}, 0.9);
  EXPECT_EQ(found.of(0).where, Where::kWithin);
  EXPECT_EQ(found.of(0).interval.high, INFINITY);
  EXPECT_GT(found.of(0).interval.low, 4);
  EXPECT_EQ(found.RatioOf(0, 1).interval.high, INFINITY);
  EXPECT_EQ(found.RatioOf(1, 0).interval.low, 0);
  EXPECT_LT(found.RatioOf(1, 0).interval.high, 1.2);
}

TEST(CapacityTest, ProbesOfOneRateAreOneProbe) {
  const std::vector<Probe> probes = {Made(2, 90, 100, 1), Made(2, 100, 100, 2)};
  ASSERT_THAT(RatePoints(probes), SizeIs(1));
  EXPECT_DOUBLE_EQ(RatePoints(probes)[0].share.value, 0.95);
  EXPECT_EQ(RatePoints(probes)[0].share.count, 200u);
}

// The same hard requests miss their targets in both modes, and a few more miss in the second mode.
// If the bootstrap resamples both modes in the same way, the interval of the capacities' ratio is
// much narrower than if it resamples each mode separately.
TEST(CapacityTest, RatioOfModesUnderOneArrivalLogIsPaired) {
  Draws draws(3);
  std::vector<std::vector<Probe>> modes(2), unpaired(2);
  for (int k = 0; k < 2; ++k) {
    Probe a{.rate = 1.0 + k, .seed = 10u + k}, b = a;
    for (int i = 0; i < 400; ++i) {
      const bool hard = draws.Below(100) < (k == 0 ? 5u : 20u);
      a.good.push_back(!hard);
      b.good.push_back(!hard && i % 40 != 0);
    }
    modes[0].push_back(a);
    modes[1].push_back(b);
    unpaired[0].push_back(a);
    b.seed += 100;
    unpaired[1].push_back(b);
  }
  const Ratio ratio = Capacities(modes, 0.9).RatioOf(0, 1);
  const Ratio loose = Capacities(unpaired, 0.9).RatioOf(0, 1);
  EXPECT_EQ(ratio.value, loose.value);
  EXPECT_GT(ratio.interval.low, 1);
  EXPECT_LT(ratio.interval.high - ratio.interval.low,
            0.6 * (loose.interval.high - loose.interval.low));
  const Ratio same = Capacities({modes[0], modes[0]}, 0.9).RatioOf(0, 1);
  EXPECT_EQ(same.interval.low, 1);
  EXPECT_EQ(same.interval.high, 1);
}

// The interval of a capacity contains the true capacity (the rate 2) about as often as it claims.
TEST(CapacityTest, IntervalsCoverTheTruth) {
  Draws draws(17);
  // Attainment is 0.9 at rate 2.
  const auto attained = [](double rate) { return 1 - 0.05 * rate; };
  int covered = 0;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<Probe> probes;
    for (const double rate : {1.0, 1.5, 2.0, 2.5, 3.0}) {
      Probe probe{.rate = rate, .seed = static_cast<uint64_t>(rate * 10)};
      for (int i = 0; i < 300; ++i)
        probe.good.push_back(draws.Below(100000) < 100000 * attained(rate));
      probes.push_back(probe);
    }
    const Capacity found = Capacities({probes}, 0.9, 100, trial).of(0);
    covered += found.interval.low <= 2 && 2 <= found.interval.high;
  }
  EXPECT_GE(covered, 90);
}

}  // namespace
}  // namespace baton
