#include "common/up/start_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

const absl::Time kBegin = absl::UnixEpoch();
absl::Time After(double seconds) { return kBegin + absl::Seconds(seconds); }

TEST(StartProgressTest, TheFirstLineComesAfterTwoSecondsAndTheNextOnesAtThePace) {
  StartProgress progress(kBegin, absl::Seconds(5));
  const std::vector<Missing> missing = {{"decode-1", "loading weights"}};
  EXPECT_EQ(progress.NextTime(), After(2));
  EXPECT_EQ(progress.Line(missing, After(1.9)), std::nullopt);
  EXPECT_EQ(progress.Line(missing, After(2)), "waiting for decode-1: loading weights (2 s)");
  EXPECT_EQ(progress.NextTime(), After(7));
  EXPECT_EQ(progress.Line({{"decode-1", "loading more"}}, After(6.9)), std::nullopt);
  EXPECT_EQ(progress.Line(missing, After(7)), "waiting for decode-1: loading weights (7 s)");
  EXPECT_FALSE(progress.Line({}, After(20))) << "nothing is missing";
}

TEST(StartProgressTest, SeveralAreNamedEachWithItsReason) {
  EXPECT_EQ(WaitingLine({{"prefill-2", "a"}, {"decode-1", "b"}}, absl::Seconds(61)),
            "waiting for prefill-2: a; decode-1: b (61 s)");
  EXPECT_EQ(WaitingLine({{"the router to serve", ""}}, absl::Seconds(3)),
            "waiting for the router to serve (3 s)");
}

TEST(StartProgressTest, ALineIsAboutOneHundredCharacters) {
  const std::string line = WaitingLine({{"decode-1", std::string(5000, 'x')}}, absl::Seconds(1));
  EXPECT_EQ(line.size(), 106u);
  EXPECT_THAT(line, testing::EndsWith("x... (1 s)"));
  const std::string loads = "loading weights, 3.1 of 16.0 GB";
  const std::vector<Missing> all = {
      {"prefill-1", loads}, {"prefill-2", loads}, {"decode-1", loads}, {"decode-2", loads}};
  EXPECT_EQ(WaitingLine(all, absl::Seconds(7)),
            "waiting for prefill-1: " + loads + "; prefill-2: " + loads + "; 2 more (7 s)");
}

}  // namespace
}  // namespace baton
