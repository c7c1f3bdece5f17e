#include "common/metrics/histogram.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/counter.h"

namespace baton {
namespace {

using testing::ElementsAre;

TEST(HistogramTest, AValueOnABoundCountsBelowIt) {
  constexpr double kBounds[] = {1, 2, 5};
  Histogram histogram(kBounds);
  for (const double value : {-1.0, 1.0, 1.5, 2.0, 5.0, 5.5, 1e9}) histogram.Observe(value);
  const Histogram::Snapshot snapshot = histogram.Take();
  EXPECT_THAT(snapshot.counts, ElementsAre(2, 2, 1, 2));
  EXPECT_EQ(snapshot.count, 7u);
  EXPECT_EQ(snapshot.sum, -1 + 1 + 1.5 + 2 + 5 + 5.5 + 1e9);
}

TEST(HistogramTest, TimesAreSecondsAndNeverLessThanNone) {
  Histogram histogram(SecondsBounds());
  histogram.Observe(absl::Milliseconds(250));
  histogram.Observe(-absl::Hours(1));
  EXPECT_EQ(histogram.Take().sum, 0.25);
  EXPECT_EQ(histogram.Take().counts[0], 1u);
}

TEST(HistogramTest, BoundsReachFromATenthOfAMillisecondToMinutes) {
  EXPECT_EQ(SecondsBounds().front(), 1e-4);
  EXPECT_EQ(SecondsBounds().back(), 500);
  EXPECT_EQ(BatchBounds().back(), 1024);
  EXPECT_EQ(TokensBounds().back(), 1 << 20);
}

TEST(HistogramTest, NothingIsLostBetweenThreads) {
  Histogram histogram(BatchBounds());
  Counter counter;
  std::vector<std::thread> threads;
  constexpr int kEach = 20000;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        histogram.Observe(double(i % 7));
        counter.Add();
      }
    });
  }
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t seen = histogram.Take().count;
    EXPECT_GE(seen, last);
    last = seen;
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (int i = 0; i < kEach; ++i) sum += i % 7;
  EXPECT_EQ(histogram.Take().count, 3u * kEach);
  EXPECT_EQ(histogram.Take().sum, 3 * sum);
  EXPECT_EQ(counter.value(), 3u * kEach);
}

TEST(HistogramDeathTest, BoundsThatDoNotAscendAreABrokenInvariant) {
  constexpr double kBounds[] = {1, 1};
  EXPECT_DEATH(Histogram histogram(kBounds), "do not ascend");
}

}  // namespace
}  // namespace baton
