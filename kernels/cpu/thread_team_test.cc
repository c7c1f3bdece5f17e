#include "kernels/cpu/thread_team.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace baton::cpu {
namespace {

TEST(ThreadTeamTest, RunsEveryItemOnceAndHasFinishedWhenRunReturns) {
  for (int threads = 1; threads <= 5; ++threads) {
    ThreadTeam team(threads);
    ASSERT_EQ(team.threads(), threads);
    for (int round = 0; round < 2000; ++round) {
      const int items = round % 23;
      // Not atomic, so that the sanitizer reports an item run by two threads.
      std::vector<int> count(items);
      std::vector<int> busy(threads);
      team.Run(items, [&](int item, int thread) {
        ++busy[thread];
        ++count[item];
      });
      int total = 0;
      for (const int n : busy) total += n;
      EXPECT_EQ(total, items);
      for (const int n : count) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadTeamTest, HelpersTakePart) {
  ThreadTeam team(2);
  // Item 0 waits for item 1, so the other thread must run item 1. Depending on the round, that
  // thread is still spinning or already asleep.
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> other{false};
    team.Run(2, [&](int item, int) {
      if (item == 1) {
        other.store(true);
        other.notify_one();
      } else {
        other.wait(false);
      }
    });
    for (int i = 0; i < round; ++i) std::this_thread::yield();
  }
}

TEST(ThreadTeamTest, GoesAwayWithoutEverHavingWorked) {
  for (int round = 0; round < 20; ++round) ThreadTeam team(4);
}

}  // namespace
}  // namespace baton::cpu
