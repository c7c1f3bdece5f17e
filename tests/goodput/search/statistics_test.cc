#include "tests/goodput/search/statistics.h"

#include <cmath>
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<uint8_t> Outcomes(size_t good, size_t bad) {
  std::vector<uint8_t> outcomes(good, 1);
  outcomes.resize(good + bad, 0);
  return outcomes;
}

TEST(StatisticsTest, WilsonIntervalsAreThoseOfTheTables) {
  // The expected values are from Newcombe, Statistics in Medicine 1998, table I, method 3.
  EXPECT_NEAR(WilsonInterval(81, 263).low, 0.2553, 5e-5);
  EXPECT_NEAR(WilsonInterval(81, 263).high, 0.3662, 5e-5);
  EXPECT_NEAR(WilsonInterval(15, 148).low, 0.0624, 5e-5);
  EXPECT_NEAR(WilsonInterval(15, 148).high, 0.1605, 5e-5);
  EXPECT_NEAR(WilsonInterval(0, 20).high, 0.1611, 5e-5);
  EXPECT_EQ(WilsonInterval(0, 20).low, 0);
  EXPECT_NEAR(WilsonInterval(29, 29).low, 0.8830, 5e-5);
  EXPECT_EQ(WilsonInterval(29, 29).high, 1);
  EXPECT_EQ(WilsonInterval(0, 0).low, 0);
  EXPECT_EQ(WilsonInterval(0, 0).high, 1);
}

TEST(StatisticsTest, IndependentOutcomesCountOneEachAndBurstsCountLess) {
  Draws draws(7);
  std::vector<uint8_t> independent, bursts;
  for (int i = 0; i < 4000; ++i) independent.push_back(draws.Below(10) != 0);
  while (bursts.size() < 4000) bursts.insert(bursts.end(), 10, draws.Below(10) != 0);
  EXPECT_LT(AutocorrelationTime(independent), 1.3);
  EXPECT_NEAR(AutocorrelationTime(bursts), 10, 3);
  const Share narrow = ShareOf(independent), wide = ShareOf(bursts);
  EXPECT_GT(wide.interval.high - wide.interval.low,
            2 * (narrow.interval.high - narrow.interval.low));
  EXPECT_EQ(AutocorrelationTime(std::vector<uint8_t>(100, 1)), 1);
}

TEST(StatisticsTest, LongBurstsAndDriftsAreJudgedInTime) {
  Draws draws(13);
  std::vector<uint8_t> bursts, drift;
  while (bursts.size() < 200000) bursts.insert(bursts.end(), 1000, draws.Below(10) != 0);
  EXPECT_NEAR(AutocorrelationTime(bursts), 1000, 300);
  for (size_t i = 0; i < 200000; ++i) drift.push_back(draws.Below(1000000) >= i);
  const std::clock_t begin = std::clock();
  EXPECT_GT(AutocorrelationTime(drift), 100);
  // The limit is in seconds of processor time. An earlier version needed minutes.
  EXPECT_LT(double(std::clock() - begin) / CLOCKS_PER_SEC, 60);
}

TEST(StatisticsTest, ShareAndIntervalOfASmallSample) {
  std::vector<uint8_t> outcomes = Outcomes(9, 1);
  const Share share = ShareOf(outcomes);
  EXPECT_EQ(share.value, 0.9);
  EXPECT_NEAR(share.interval.low, 0.5958, 5e-5);
  EXPECT_NEAR(share.interval.high, 0.9821, 5e-5);
  EXPECT_EQ(ShareOf({}).count, 0u);
  EXPECT_EQ(ShareOf({}).interval.high, 1);
}

TEST(StatisticsTest, QuantilesLieBetweenNeighbours) {
  const std::vector<double> sorted = {1, 2, 4, 8};
  EXPECT_EQ(Quantile(sorted, 0), 1);
  EXPECT_EQ(Quantile(sorted, 0.5), 3);
  EXPECT_EQ(Quantile(sorted, 1), 8);
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({5}, 0.99), 5);
}

TEST(StatisticsTest, BlocksDrawnAgainSpreadAsTheSampleDoes) {
  Draws draws(11);
  std::vector<uint8_t> outcomes;
  for (int i = 0; i < 1000; ++i) outcomes.push_back(draws.Below(5) != 0);
  const BlockSample sample(outcomes);
  double mean = 0, square = 0;
  for (int i = 0; i < 2000; ++i) {
    const double share = sample.Draw(&draws, sample.block()) / sample.size();
    mean += share / 2000;
    square += share * share / 2000;
  }
  EXPECT_NEAR(mean, 0.8, 0.02);
  EXPECT_NEAR(std::sqrt(square - mean * mean), std::sqrt(0.8 * 0.2 / 1000), 0.003);
  const BlockSample certain(Outcomes(50, 0));
  EXPECT_EQ(certain.Draw(&draws, certain.block()), 50);
}

TEST(StatisticsTest, DrawsOfOneStateArePaired) {
  const std::vector<uint8_t> outcomes = Outcomes(70, 30);
  const BlockSample a(outcomes), b(outcomes);
  Draws one(3), other(3);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(a.Draw(&one, 4), b.Draw(&other, 4));
}

TEST(StatisticsTest, DrawsBelowABoundAreEven) {
  Draws draws(5);
  std::vector<int> counts(6);
  for (int i = 0; i < 6000; ++i) ++counts[draws.Below(6)];
  EXPECT_THAT(counts, testing::Each(testing::AllOf(testing::Gt(880), testing::Lt(1120))));
}

}  // namespace
}  // namespace baton
