#include "common/worker/load_progress.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kTotal = 16'000'000'000;

class LoadProgressTest : public testing::Test {
 protected:
  std::unique_ptr<LoadProgress> Make(bool terminal) {
    return std::make_unique<LoadProgress>(
        LoadProgress::Options{
            .terminal = terminal,
            .log =
                [this](const LoadProgress::Now& now) { said_.push_back(LoadProgress::Text(now)); },
            .terminal_write = [this](absl::string_view text) { said_.emplace_back(text); }},
        kStart);
  }
  // Calls Tick every 100 ms from `from` to `to`, both included, as a loop would.
  void Run(LoadProgress* progress, absl::Duration from, absl::Duration to) {
    for (absl::Duration at = from; at <= to; at += absl::Milliseconds(100)) {
      progress->Tick(kStart + at);
    }
  }
  std::vector<std::string> said_;
};

TEST_F(LoadProgressTest, ALogHasALineASecondAfterTwo) {
  const auto progress = Make(false);
  progress->Set("weights", 1'000'000'000, kTotal);
  Run(progress.get(), absl::ZeroDuration(), absl::Milliseconds(1900));
  EXPECT_THAT(said_, IsEmpty());
  progress->Set("weights", 3'140'000'000, kTotal);
  Run(progress.get(), absl::Seconds(2), absl::Milliseconds(2900));
  EXPECT_THAT(said_, ElementsAre("3.1 of 16.0 GB"));
  // Lines also appear when the start makes no progress.
  Run(progress.get(), absl::Seconds(3), absl::Seconds(5));
  EXPECT_EQ(said_.size(), 4u);
  progress->End();
  EXPECT_EQ(said_.size(), 4u);
}

TEST_F(LoadProgressTest, ATerminalHasABarThatGoesAway) {
  const auto progress = Make(true);
  progress->Set("weights", 8'000'000'000, kTotal);
  Run(progress.get(), absl::ZeroDuration(), absl::Milliseconds(200));
  EXPECT_THAT(said_, IsEmpty());
  progress->Tick(kStart + absl::Milliseconds(300));
  progress->Set("kv_pool", 500'000'000, 500'000'000);
  progress->Tick(kStart + absl::Milliseconds(400));
  progress->End();
  progress->End();
  EXPECT_THAT(said_,
              ElementsAre("\r\x1b[Kloading weights [###############               ] 8.0 of 16.0 GB",
                          "\r\x1b[Ktaking memory for the KV pool [##############################] "
                          "500 of 500 MB",
                          "\r\x1b[K"));
}

TEST_F(LoadProgressTest, NothingIsSaidBeforeThereIsSomethingToSay) {
  for (const bool terminal : {false, true}) {
    const auto progress = Make(terminal);
    Run(progress.get(), absl::ZeroDuration(), absl::Seconds(4));
    progress->End();
    EXPECT_THAT(said_, IsEmpty());
  }
}

}  // namespace
}  // namespace baton
