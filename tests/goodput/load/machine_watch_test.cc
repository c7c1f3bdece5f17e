#include "tests/goodput/load/machine_watch.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Stands in for the function that MachineWatch calls to measure a request on an idle server. Each
// call returns the next time of the script, as the time from the start of a request to its end.
class Script {
 public:
  explicit Script(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  absl::StatusOr<UnloadedLatency> operator()(size_t) {
    if (next_ == seconds_.size()) return absl::UnavailableError("nobody answers");
    const double whole = seconds_[next_++];
    return UnloadedLatency{.ttft_s = whole / 2, .tpot_s = whole / 2 / 4, .output_tokens = 5};
  }
  size_t asked() const { return next_; }

 private:
  std::vector<double> seconds_;
  size_t next_ = 0;
};

TEST(MachineWatchTest, TheFastestOfThreeIsWhatLaterOnesAreHeldAgainst) {
  Script script({1.5, 1.0, 1.3, 1.19, 1.21});
  MachineWatch watch(1, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  EXPECT_THAT(watch.StillSteady(0).value(), true);
  EXPECT_THAT(watch.StillSteady(0).value(), false);
}

TEST(MachineWatchTest, EachSideHasItsOwnFirstLatency) {
  Script script({1, 10, 1, 10, 1, 10, 10, 1.1, 2});
  MachineWatch watch(2, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  EXPECT_TRUE(watch.StillSteady(1).value());
  EXPECT_TRUE(watch.StillSteady(0).value());
  EXPECT_FALSE(watch.StillSteady(0).value());
}

TEST(MachineWatchTest, WaitsForASlowTimeToEndAndAsksNothingWhileItIsKnownToBeSteady) {
  Script script({1, 1, 1, 1, 1.8, 1.7, 1.05});
  MachineWatch watch(1, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  // Begin() has measured the first three latencies of the script. This call measures the fourth.
  EXPECT_TRUE(watch.WaitUntilSteady(0, 10).value());
  EXPECT_TRUE(watch.WaitUntilSteady(0, 10).value());
  EXPECT_EQ(script.asked(), 4u);
  EXPECT_FALSE(watch.StillSteady(0).value());
  EXPECT_TRUE(watch.WaitUntilSteady(0, 10).value());
  EXPECT_EQ(script.asked(), 7u);
  EXPECT_THAT(watch.Remark(), HasSubstr("up to 1.80 times as long as at first; 1 load that met"));
}

TEST(MachineWatchTest, GivesUpWaitingAfterAsManyAsItMay) {
  Script script({1, 1, 1, 2, 2, 2, 2});
  MachineWatch watch(1, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  EXPECT_FALSE(watch.WaitUntilSteady(0, 3).value());
  EXPECT_EQ(script.asked(), 6u);
}

TEST(MachineWatchTest, WaitsNoLongerThanThereIsTime) {
  Script script({1, 1, 1, 2, 2, 2, 2});
  MachineWatch watch(1, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  EXPECT_FALSE(watch.WaitUntilSteady(0, 10, [&] { return script.asked() < 5; }).value());
  EXPECT_EQ(script.asked(), 5u);
}

TEST(MachineWatchTest, ASteadyMachineIsNotSpokenOf) {
  Script script({1, 1, 1, 1, 1});
  MachineWatch watch(1, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  EXPECT_TRUE(watch.WaitUntilSteady(0, 3).value());
  EXPECT_TRUE(watch.StillSteady(0).value());
  EXPECT_THAT(watch.Remark(), IsEmpty());
}

TEST(MachineWatchTest, ARequestThatFailsIsToldByWhoeverAsked) {
  Script nobody({});
  EXPECT_EQ(MachineWatch(1, 0.2, std::ref(nobody)).Begin().message(), "nobody answers");
  Script script({1, 1, 1});
  MachineWatch watch(1, 0.2, std::ref(script));
  ASSERT_TRUE(watch.Begin().ok());
  EXPECT_EQ(watch.StillSteady(0).status().message(), "nobody answers");
  EXPECT_EQ(watch.WaitUntilSteady(0, 1).status().message(), "nobody answers");
}

}  // namespace
}  // namespace baton
