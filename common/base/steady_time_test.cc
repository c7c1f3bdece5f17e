#include "common/base/steady_time.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace baton {
namespace {

TEST(SteadyTimeTest, BeginsWithTheSystemsClockAndNeverGoesBack) {
  absl::Time last = SteadyNow();
  EXPECT_LT(absl::AbsDuration(last - absl::Now()), absl::Hours(1));
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = SteadyNow();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SteadyTimeTest, MomentsOfTheSystemsClockThereAndBack) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  const absl::Duration left = ToSteady(deadline) - SteadyNow();
  EXPECT_LT(left, absl::Seconds(31));  // the two clocks differ by some microseconds
  EXPECT_GT(left, absl::Seconds(20));
  EXPECT_LT(absl::AbsDuration(FromSteady(ToSteady(deadline)) - deadline), absl::Seconds(1));
  EXPECT_EQ(ToSteady(absl::InfiniteFuture()), absl::InfiniteFuture());
  EXPECT_EQ(FromSteady(absl::InfiniteFuture()), absl::InfiniteFuture());
}

}  // namespace
}  // namespace baton
