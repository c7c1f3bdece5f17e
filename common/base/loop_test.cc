#include "common/base/loop.h"

#include <atomic>
#include <thread>

#include "common/base/steady_time.h"
#include "common/base/wakeup.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

// A wait so long that only a wake-up can end it within the test.
constexpr absl::Duration kForEver = absl::Hours(24);

TEST(WakeupTest, OneThatComesBeforeTheWaitEndsIt) {
  Wakeup wakeup;
  wakeup.Wake();
  wakeup.Wake();
  wakeup.WaitFor(kForEver);
  // The two calls of Wake counted as one, which ended the first wait. So the second wait lasts its
  // full time.
  const absl::Time start = SteadyNow();
  wakeup.WaitFor(absl::Milliseconds(2));
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(2));
}

TEST(WakeupTest, ATimeThatIsNotPositiveDoesNotWait) {
  Wakeup wakeup;
  wakeup.WaitFor(absl::ZeroDuration());
  wakeup.WaitFor(-kForEver);
}

TEST(WakeupTest, NoneIsLost) {
  // Two threads wake each other in turns, so the loss of one wake-up would stop both.
  Wakeup left, right;
  int turns = 0;
  constexpr int kTurns = 20'000;
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      left.WaitFor(kForEver);
      ++turns;
      right.Wake();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    EXPECT_EQ(turns, i);
    left.Wake();
    right.WaitFor(kForEver);
  }
  other.join();
  EXPECT_EQ(turns, kTurns);
}

// Fixture with a loop that counts its calls of run_once and wakes the test after each call.
class LoopWaitTest : public testing::Test {
 protected:
  void Start(Loop::Options options) {
    loop_ = std::make_unique<Loop>(std::move(options), [this](absl::Time) {
      ++turns_;
      turned_.Wake();
      return false;
    });
  }
  void AwaitTurns(int turns) {
    while (turns_ < turns) turned_.WaitFor(kForEver);
  }

  std::atomic<int> turns_ = 0;
  Wakeup turned_;
  std::unique_ptr<Loop> loop_;
};

TEST_F(LoopWaitTest, WakeBringsTheNextTurn) {
  Start({.idle = kForEver});
  AwaitTurns(1);
  loop_->Wake();
  AwaitTurns(2);
  loop_->Stop();
  const int last = turns_;
  loop_->Wake();
  EXPECT_EQ(turns_, last);
}

TEST_F(LoopWaitTest, AWakeUpFromBeforeTheLoopWasMadeIsNotLost) {
  Wakeup wakeup;
  wakeup.Wake();
  Start({.idle = kForEver, .wakeup = &wakeup});
  AwaitTurns(2);
  wakeup.Wake();
  AwaitTurns(3);
  loop_ = nullptr;
  wakeup.Wake();
}

TEST_F(LoopWaitTest, NoWaitLastsBeyondTheNextTurn) {
  Start({.idle = kForEver, .next_turn = [] { return SteadyNow() + absl::Milliseconds(1); }});
  AwaitTurns(5);
}

TEST_F(LoopWaitTest, WaitsAsItIsTold) {
  Wakeup wakeup;
  absl::Duration longest;  // used by the loop's thread until it has ended
  Start({.idle = kForEver,
         .wait =
             [&](absl::Duration time) {
               longest = time;
               wakeup.WaitFor(time);
             },
         .wake = [&] { wakeup.Wake(); }});
  AwaitTurns(1);
  loop_->Wake();
  AwaitTurns(2);
  loop_ = nullptr;
  EXPECT_EQ(longest, kForEver);
}

}  // namespace
}  // namespace baton
