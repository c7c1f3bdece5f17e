#include "kernels/device/simt/run_grid.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/simt/memory_map.h"
#include "kernels/device/simt/testing/probe_kernels.h"

namespace baton::simt {
namespace {

using emulated_kernels::ProbeParams;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct alignas(16) Words {
  std::array<uint32_t, 4096> word{};
};

// Status and output of a kernel that ran with `in` = 1000, 1001, ...
struct Ran {
  absl::Status status;
  Words out;
};

Ran RunProbe(const Kernel& kernel, const LaunchShape& shape, int which,
             const SimtOptions& options = {}) {
  Words in;
  std::iota(in.word.begin(), in.word.end(), 1000);
  Ran ran;
  const ProbeParams params{ran.out.word.data(), in.word.data(), which};
  ran.status = RunGrid(kernel, shape, &params, options);
  return ran;
}

std::string MessageOf(const Ran& ran) {
  EXPECT_EQ(ran.status.code(), absl::StatusCode::kInternal) << ran.status;
  return std::string(ran.status.message());
}

TEST(RunGridTest, EveryThreadOfEveryBlockRunsOnceAndKnowsItsPlace) {
  const LaunchShape shape{.grid_x = 3, .grid_y = 2, .grid_z = 2, .threads = 32};
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Ran ran = RunProbe(emulated_kernels::kIndices, shape, 0, {.seed = seed});
    ASSERT_EQ(ran.status, absl::OkStatus());
    for (uint32_t i = 0; i < 12 * 32; ++i) {
      const uint32_t block = i / 32, thread = i % 32;
      const std::array<uint32_t, 8> expected = {thread,        thread, block % 3, block / 3 % 2,
                                                block / 3 / 2, 3,      2,         2};
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), &ran.out.word[8 * i])) << i;
    }
  }
}

TEST(RunGridTest, RunsTheLargestBlock) {
  const Ran ran = RunProbe(emulated_kernels::kOrder, {.threads = 1024}, 0, {.seed = 2});
  ASSERT_EQ(ran.status, absl::OkStatus());
  EXPECT_EQ(ran.out.word[2048], 2048u);
  // No thread continued before all threads had reached the barrier.
  for (int i = 0; i < 1024; ++i) {
    EXPECT_LT(ran.out.word[i], 1024u);
    EXPECT_GE(ran.out.word[1024 + i], 1024u);
  }
}

TEST(RunGridTest, SeedsMakeAscendingDescendingAndOtherOrdersAndRepeatThem) {
  const auto order = [](uint64_t seed) {
    const Ran ran = RunProbe(emulated_kernels::kOrder, {.threads = 256}, 0, {.seed = seed});
    EXPECT_EQ(ran.status, absl::OkStatus());
    return std::vector<uint32_t>(ran.out.word.begin(), ran.out.word.begin() + 512);
  };
  for (uint32_t i = 0; i < 256; ++i) {
    EXPECT_EQ(order(0)[i], i);
    EXPECT_EQ(order(0)[256 + i], 256 + i);
    EXPECT_EQ(order(1)[i], 255 - i);
    EXPECT_EQ(order(1)[256 + i], 511 - i);
  }
  EXPECT_EQ(order(2), order(2));
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 2; seed < 32; seed += 3) orders.insert(order(seed));
  EXPECT_EQ(orders.size(), 10u);
}

TEST(RunGridTest, RefusesWhatNoKernelMayHave) {
  const auto code = [](const LaunchShape& shape) {
    return RunProbe(emulated_kernels::kShared, shape, 0).status;
  };
  for (const int threads : {0, -32, 16, 33, 96, 1056}) {
    EXPECT_EQ(code({.threads = threads}).code(), absl::StatusCode::kInvalidArgument) << threads;
  }
  EXPECT_EQ(code({.grid_x = 0}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.grid_y = 65536}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.grid_z = -1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(code({.shared_bytes = (99 << 10) + 1}).ToString(),
              AllOf(HasSubstr("kShared"), HasSubstr("101377"), HasSubstr("101376")));
  EXPECT_EQ(RunGrid(Kernel{}, {}, nullptr, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunGrid(emulated_kernels::kIndices, {}, nullptr, {}).code(),
            absl::StatusCode::kInvalidArgument);
  Kernel large = emulated_kernels::kIndices;
  large.params_bytes = 4001;
  EXPECT_THAT(RunGrid(large, {}, &large, {}).ToString(), HasSubstr("4001"));
}

TEST(RunGridTest, ABarrierThatNotEveryThreadReachesIsAnError) {
  const LaunchShape shape{.grid_x = 2, .threads = 64};
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const SimtOptions options{.seed = seed};
    const auto run = [&](int which) {
      return RunProbe(emulated_kernels::kBarriers, shape, which, options);
    };
    EXPECT_EQ(run(0).status, absl::OkStatus());
    EXPECT_THAT(MessageOf(run(1)),
                AllOf(HasSubstr("kernel kBarriers, block ("), HasSubstr("to the same barrier"),
                      HasSubstr("threads 0-31 at SyncThreads (probe_kernels.cu:"),
                      HasSubstr("threads 32-63 returned")));
    EXPECT_THAT(MessageOf(run(2)), HasSubstr("to the same barrier"));
    EXPECT_THAT(MessageOf(run(3)),
                AllOf(HasSubstr("not every lane of warp 0"), HasSubstr("thread 7 at WarpSum"),
                      HasSubstr("threads 0-6 at SyncThreads")));
    EXPECT_THAT(MessageOf(run(4)), AllOf(HasSubstr("not every lane"), HasSubstr("at WarpSum")));
    EXPECT_THAT(MessageOf(run(5)),
                AllOf(HasSubstr("not every lane of warp 1"), HasSubstr("thread 40 returned"),
                      HasSubstr("threads 41-63 at ShuffleXor")));
    // A failure does not affect later runs.
    EXPECT_EQ(run(0).status, absl::OkStatus());
  }
}

TEST(RunGridTest, AMissingBarrierIsSeenInValuesUnderSomeSchedule) {
  for (int which = 0; which < 4; ++which) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Ran ran = RunProbe(emulated_kernels::kExchange, {.threads = 64}, which, {.seed = seed});
      ASSERT_EQ(ran.status, absl::OkStatus());
      bool right = true;
      for (int i = 0; i < 192; ++i) {
        right &= ran.out.word[i] == 1000u + (i % 64 ^ 32) + i / 64;
      }
      wrong += !right;
    }
    EXPECT_EQ(wrong > 0, which != 0) << which << ": " << wrong << " of 10 schedules";
  }
}

TEST(RunGridTest, CopiesLandWithTheirGroupsWaitOrAtOnce) {
  Words in;
  std::iota(in.word.begin(), in.word.end(), 1000);
  const auto expected = [&](int i) {
    return in.word[i / 4 < 64 ? (i ^ 128) : 256 + (i % 256 ^ 128)];
  };
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const bool late = seed < 3;
    for (const int which : {0, 1, 2, 3, 6, 7}) {
      const Ran ran = RunProbe(emulated_kernels::kCopies, {.threads = 64}, which, {.seed = seed});
      ASSERT_EQ(ran.status, absl::OkStatus());
      int wrong[2] = {};  // wrong words of the first copies and of the second copies
      for (int i = 0; i < 512; ++i) wrong[i / 256] += ran.out.word[i] != expected(i);
      EXPECT_EQ(wrong[0] > 0, which == 2 || which == 6 || (late && which == 1)) << seed << which;
      EXPECT_EQ(wrong[1] > 0, late && which == 3) << seed << which;
      if (which == 6) {  // thread 63 then copies zeros
        EXPECT_EQ(wrong[0], 4);
        EXPECT_EQ(ran.out.word[4 * 31], 0u);
      }
      if (which == 7) {  // read while in flight
        EXPECT_EQ(ran.out.word[512], late ? 0xffffffff : in.word[256]);
      }
    }
  }
}

TEST(RunGridTest, ACopyToOrFromAWrongPlaceIsAnError) {
  EXPECT_THAT(MessageOf(RunProbe(emulated_kernels::kCopies, {.threads = 64}, 4)),
              AllOf(HasSubstr("thread 3: CopyAsync16 (probe_kernels.cu:"),
                    HasSubstr("shared address not aligned to 16")));
  EXPECT_THAT(MessageOf(RunProbe(emulated_kernels::kCopies, {.threads = 64}, 5)),
              HasSubstr("outside shared memory"));
  Words in, out;
  const ProbeParams params{out.word.data(), in.word.data(), 0};
  MemoryMap memory;
  memory.Add(&in, 64 * 16, true);  // half of the bytes that the kernel copies
  EXPECT_THAT(
      RunGrid(emulated_kernels::kCopies, {.threads = 64}, &params, {.memory = &memory}).ToString(),
      HasSubstr("outside global memory"));
  memory.Remove(&in);
  memory.Add(&in, 128 * 16, true);
  EXPECT_EQ(RunGrid(emulated_kernels::kCopies, {.threads = 64}, &params, {.memory = &memory}),
            absl::OkStatus());
}

TEST(RunGridTest, SharedMemoryIsPoisonedForEveryBlockAndNoBetterAlignedThanPromised) {
  const Ran ran =
      RunProbe(emulated_kernels::kShared, {.grid_x = 2, .threads = 64, .shared_bytes = 256}, 0);
  ASSERT_EQ(ran.status, absl::OkStatus());
  for (int i = 0; i < 128; ++i) {
    const std::array<uint32_t, 8> expected = {0xffff, 0xffffffff, 0xffffffff, 16, 16, 128, 286, 0};
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), &ran.out.word[8 * i])) << i;
  }
  EXPECT_THAT(MessageOf(RunProbe(emulated_kernels::kTooMuchShared, {.threads = 32}, 0)),
              AllOf(HasSubstr("one_more"), HasSubstr("49156"), HasSubstr("49152")));
}

TEST(RunGridTest, VectorsThatAreNotAlignedAreErrors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined behaviour sanitizer ends the program there";
#endif
  EXPECT_EQ(RunProbe(emulated_kernels::kMisaligned, {.threads = 32}, 0).status, absl::OkStatus());
  for (const int which : {1, 2}) {
    EXPECT_THAT(MessageOf(RunProbe(emulated_kernels::kMisaligned, {.threads = 32}, which)),
                HasSubstr("16-byte access"));
  }
}

TEST(RunGridTest, LocalArraysAreAThreadsOwnInEveryBlockAndAfterAFailure) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const int threads = 32 << seed % 6;
    const Ran ran =
        RunProbe(emulated_kernels::kLocals, {.grid_x = 3, .threads = threads}, 0, {.seed = seed});
    ASSERT_EQ(ran.status, absl::OkStatus());
    for (int i = 0; i < threads; ++i) ASSERT_EQ(ran.out.word[i], 45u + i);
    (void)RunProbe(emulated_kernels::kBarriers, {.threads = 64}, static_cast<int>(seed % 6));
    (void)RunProbe(emulated_kernels::kIndices, {.threads = 256}, 0);
  }
}

TEST(RunGridDeathTest, AStackThatOverflowsFaults) {
  EXPECT_EQ(RunProbe(emulated_kernels::kDeep, {.threads = 32}, 40).status, absl::OkStatus());
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH((void)RunProbe(emulated_kernels::kDeep, {.threads = 32}, 400), "AddressSanitizer");
  EXPECT_DEATH((void)RunProbe(emulated_kernels::kWide, {.threads = 32}, 20), "AddressSanitizer");
#else
  const auto faults = testing::KilledBySignal(SIGSEGV);
  EXPECT_EXIT((void)RunProbe(emulated_kernels::kDeep, {.threads = 32}, 400), faults, "");
  // The probe's stack frame is larger than several stacks. A write to the frame's lowest bytes must
  // end the process, not reach another thread's stack.
  EXPECT_EXIT((void)RunProbe(emulated_kernels::kWide, {.threads = 32}, 20), faults, "");
#endif
}

TEST(RunGridTest, OsThreadsRunGridsSideBySide) {
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&status = statuses[i], i] {
      for (uint64_t seed = 0; seed < 20 && status.ok(); ++seed) {
        const Ran ran = RunProbe(emulated_kernels::kExchange, {.threads = 64}, 0,
                                 {.seed = seed + static_cast<uint64_t>(i)});
        status = ran.out.word[0] == 1032 ? ran.status : absl::UnknownError("wrong value");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
}

}  // namespace
}  // namespace baton::simt
