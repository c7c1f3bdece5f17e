// Sets the system clock of all programs of a cluster while requests run.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/scratch_folder.h"
#include "tests/cluster/cluster.h"

namespace baton {
namespace {

// Makes the programs that are started while it exists use a clock that can be set.
class SteppedClock {
 public:
  SteppedClock() {
    std::ofstream(folder_.File("step"), std::ios::binary) << std::string(2 * sizeof(int64_t), '\0');
    setenv("BATON_CLOCK_STEP", folder_.File("step").c_str(), 1);
    setenv("LD_PRELOAD", BATON_STEPPED_CLOCK, 1);
  }
  ~SteppedClock() { StopPreloading(); }
  static void StopPreloading() {
    unsetenv("LD_PRELOAD");
    unsetenv("BATON_CLOCK_STEP");
  }
  // Sets the system clock of these programs to the right time plus `seconds`.
  void Set(int64_t seconds) const {
    std::fstream file(folder_.File("step"), std::ios::binary | std::ios::in | std::ios::out);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
  }
  // Returns how often these programs have read a clock that was not right.
  int64_t reads() const {
    int64_t reads = -1;
    std::ifstream file(folder_.File("step"), std::ios::binary);
    file.seekg(sizeof(reads));
    file.read(reinterpret_cast<char*>(&reads), sizeof(reads));
    return reads;
  }

 private:
  const ScratchFolder folder_;
};

// Requests with deadlines come before, during and after steps of an hour. None of them may fail,
// and no worker may be lost. (The kernel's clock stays as it is. So waits in libraries until a time
// of a clock that was set back end at once and begin anew, and requests take some 100 ms longer.)
TEST(SteppedClockTest, NoDeadlineDependsOnTheSystemClock) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library must be loaded first";
#endif
  const SteppedClock clock;
  auto started = Cluster::Start({});
  SteppedClock::StopPreloading();
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  const v1::GenerateRequest request = TokenRequest({5, 6, 7}, 4);
  for (const int64_t seconds : {0, -3600, 0, 3600, -7200}) {
    const int64_t reads = clock.reads();
    clock.Set(seconds);
    for (int i = 0; i < 10; ++i) {
      const Answer answer = Generate(cluster.stub(), request, absl::Seconds(20));
      ASSERT_TRUE(answer.status.ok()) << "after a step to " << seconds << ": " << answer.status;
      ASSERT_EQ(answer.summary.migrations(), 0u);
    }
    // (A library may go on with an old time for a while, so lines of the log would not show it.)
    if (seconds != 0) {
      EXPECT_GT(clock.reads(), reads) << "no program had the other clock: step to " << seconds;
    }
  }
}

}  // namespace
}  // namespace baton
