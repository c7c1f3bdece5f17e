#include "common/up/start_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

const absl::Time kBegin = absl::UnixEpoch();
absl::Time After(double seconds) { return kBegin + absl::Seconds(seconds); }

TEST(StartProgressTest, TwoSecondsAreTheLongestSilence) {
  StartProgress progress(kBegin);
  const std::vector<Missing> missing = {{"decode-1", "loading weights"}};
  EXPECT_EQ(progress.NextTime(), After(2));
  EXPECT_EQ(progress.Line(missing, After(1.9)), std::nullopt);
  EXPECT_EQ(progress.Line(missing, After(2)), "waiting for decode-1 (2 s): loading weights");
  EXPECT_EQ(progress.Line(missing, After(3)), std::nullopt) << "nothing has changed";
  EXPECT_EQ(progress.Line(missing, After(4)), "waiting for decode-1 (4 s): loading weights");
}

TEST(StartProgressTest, WhatChangesIsShownOncePerSecond) {
  StartProgress progress(kBegin);
  EXPECT_TRUE(progress.Line({{"decode-1", "1 of 9 GB"}}, After(2)));
  EXPECT_FALSE(progress.Line({{"decode-1", "2 of 9 GB"}}, After(2.5)));
  EXPECT_EQ(progress.Line({{"decode-1", "3 of 9 GB"}}, After(3)),
            "waiting for decode-1 (3 s): 3 of 9 GB");
  EXPECT_FALSE(progress.Line({}, After(9))) << "nothing is missing";
}

TEST(StartProgressTest, SeveralAreNamedEachWithItsReason) {
  EXPECT_EQ(WaitingLine({{"prefill-2", "a"}, {"decode-1", "b"}}, absl::Seconds(61)),
            "waiting for prefill-2, decode-1 (61 s): prefill-2: a; decode-1: b");
  EXPECT_LT(WaitingLine({{"decode-1", std::string(5000, 'x')}}, absl::Seconds(1)).size(), 300u);
}

}  // namespace
}  // namespace baton
