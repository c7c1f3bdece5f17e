#include "common/base/pulse.h"

#include "common/base/loop.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLimit = absl::Seconds(4);

class PulseWatchTest : public ::testing::Test {
 protected:
  PulseWatchTest() {
    watch.Add("core", &core);
    watch.Add("kv", &kv);
  }
  std::vector<std::string> After(absl::Duration by) { return watch.Silent(now += by); }

  Pulse core, kv;
  PulseWatch watch{kLimit};
  absl::Time now = absl::FromUnixSeconds(1000);
};

TEST_F(PulseWatchTest, OnlyTheOneThatStoppedIsSilentAndItComesBack) {
  for (int second = 0; second <= 4; ++second) {
    core.Beat();
    EXPECT_THAT(After(absl::Seconds(1)), IsEmpty()) << second;
  }
  core.Beat();
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre("kv"));
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre("kv"));
  kv.Beat();
  EXPECT_THAT(After(absl::Seconds(1)), IsEmpty());
}

TEST_F(PulseWatchTest, AllOfThemMayBeSilent) {
  for (int second = 0; second <= 4; ++second) EXPECT_THAT(After(absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre("core", "kv"));
}

TEST_F(PulseWatchTest, ASuspendedProcessBlamesNobody) {
  EXPECT_THAT(After(absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(After(absl::Hours(8)), IsEmpty());
  core.Beat();
  kv.Beat();
  EXPECT_THAT(After(absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(After(-absl::Hours(8)), IsEmpty()) << "the clock was set back";
}

TEST(LoopTest, BeatsAtEveryTurnAndStopsWhileATurnHangs) {
  Pulse pulse;
  Mutex mutex;
  CondVar changed;
  int turns = 0;         // guarded by `mutex`
  bool hang = false;     // guarded by `mutex`
  bool hanging = false;  // guarded by `mutex`
  Loop loop({.name = "test", .idle = absl::Milliseconds(1), .pulse = &pulse}, [&](absl::Time) {
    MutexLock lock(&mutex);
    ++turns;
    hanging = hang;
    changed.SignalAll();
    while (hang) changed.Wait(&mutex);
    return false;
  });
  {
    MutexLock lock(&mutex);
    while (turns < 5) changed.Wait(&mutex);
    EXPECT_GE(pulse.beats(), 5u);
    hang = true;
    while (!hanging) changed.Wait(&mutex);
  }
  const uint64_t beats = pulse.beats();
  loop.Wake();
  EXPECT_EQ(pulse.beats(), beats);
  {
    MutexLock lock(&mutex);
    const int before = turns;
    hang = false;
    changed.SignalAll();
    while (turns < before + 2) changed.Wait(&mutex);
  }
  EXPECT_GT(pulse.beats(), beats);
}

}  // namespace
}  // namespace baton
