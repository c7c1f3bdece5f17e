#include "kernels/device/simt/access_checker.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/simt/memory_map.h"
#include "kernels/device/simt/run_grid.h"
#include "kernels/device/simt/testing/faulty_kernels.h"

namespace baton::simt {
namespace {

using emulated_kernels::kBoundsFaults;
using emulated_kernels::kCopies;
using emulated_kernels::kGlobalFaults;
using emulated_kernels::kSharedFaults;
using emulated_kernels::ProbeParams;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kWords = 512;
struct alignas(16) Words {
  uint32_t word[kWords];
};

// Runs the kernel on a device with two pieces of memory. The bytes of `in` count as written, so the
// kernel may read them. The bytes of `out` do not.
absl::Status RunKernel(const Kernel& kernel, int which, uint64_t seed,
                       LaunchShape shape = {.threads = 64}) {
  struct {
    uint32_t before[4] = {};
    Words in;
    uint32_t between[4] = {};
    Words out;
  } memory;
  std::iota(memory.in.word, memory.in.word + kWords, 0);
  MemoryMap map;
  map.Add(&memory.in, sizeof(Words), true);
  map.Add(&memory.out, sizeof(Words), false);
  const ProbeParams params{memory.out.word, memory.in.word, which};
  return RunGrid(kernel, shape, &params, {.seed = seed, .memory = &map});
}

// Expects no fault under any kind of schedule.
void ExpectClean(const Kernel& kernel, int which, LaunchShape shape = {.threads = 64}) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    EXPECT_EQ(RunKernel(kernel, which, seed, shape), absl::OkStatus())
        << which << ", seed " << seed;
  }
}

void ExpectFault(const Kernel& kernel, int which, testing::Matcher<std::string> message,
                 LaunchShape shape = {.threads = 64}) {
  for (const uint64_t seed : {0, 1, 2, 5}) {
    const absl::Status status = RunKernel(kernel, which, seed, shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << which << ", seed " << seed;
    EXPECT_THAT(std::string(status.message()), message) << which << ", seed " << seed;
  }
}

std::string MessageInAscendingOrder(const Kernel& kernel, int which,
                                    LaunchShape shape = {.threads = 64}) {
  return std::string(RunKernel(kernel, which, 0, shape).message());
}

TEST(AccessCheckerTest, BarriersAndSyncWarpsOrderWhatTheySeparate) {
  for (const int which : {0, 10, 19, 20, 21}) ExpectClean(kSharedFaults, which);
  ExpectClean(emulated_kernels::kExchange, 0);
  ExpectClean(emulated_kernels::kBarriers, 0);
  ExpectClean(kCopies, 0);
  ExpectClean(kCopies, 6);
  ExpectClean(kGlobalFaults, 0, {.grid_x = 3, .threads = 32});
  ExpectClean(kBoundsFaults, 0, {.threads = 64, .shared_bytes = 256});
  ExpectClean(kBoundsFaults, 10, {.threads = 64, .shared_bytes = 256});
}

TEST(AccessCheckerTest, RacesBetweenWarpsAndBetweenLanesUnderEverySchedule) {
  for (const int which : {1, 2, 3, 11, 12, 13, 15, 16, 17, 18, 22}) {
    ExpectFault(
        kSharedFaults, which,
        AllOf(HasSubstr("kernel kSharedFaults, block (0, 0, 0), thread "), HasSubstr("'words' + "),
              HasSubstr("at faulty_kernels.cu:"), HasSubstr("races with the ")));
  }
  ExpectFault(emulated_kernels::kExchange, 1, HasSubstr("kExchange"));
  ExpectFault(emulated_kernels::kExchange, 2, HasSubstr("races with the "));
}

TEST(AccessCheckerTest, AReportNamesBothAccessesAndTheirLines) {
  EXPECT_THAT(MessageInAscendingOrder(kSharedFaults, 2),
              testing::MatchesRegex(".*thread 32: read of 4 bytes at 'words' \\+ 0 at "
                                    "faulty_kernels.cu:[0-9]+ races with the write by thread 0 at "
                                    "faulty_kernels.cu:[0-9]+"));
}

TEST(AccessCheckerTest, LinesAreTheKernelsAlsoWhereItCallsDeviceCode) {
  const std::string copy = MessageInAscendingOrder(kCopies, 1);
  EXPECT_THAT(copy,
              testing::MatchesRegex(".* at probe_kernels.cu:[0-9]+ is of data that a copy may "
                                    "still bring, begun by thread 32 at probe_kernels.cu:.*"));
  EXPECT_THAT(MessageInAscendingOrder(emulated_kernels::kMisaligned, 1, {.threads = 32}),
              testing::MatchesRegex(".*16-byte access of 0x[0-9a-f]+, which is misaligned, at "
                                    "probe_kernels.cu:[0-9]+"));
}

TEST(AccessCheckerTest, ManyReadersAreAllRemembered) {
  // The last thread that reads a word may also be the one that writes it later. The checker must
  // still remember the reads of the other threads.
  EXPECT_THAT(
      MessageInAscendingOrder(kSharedFaults, 4),
      AllOf(HasSubstr("thread 32: write"), HasSubstr("races with the read by several warps")));
  EXPECT_THAT(MessageInAscendingOrder(kSharedFaults, 14),
              AllOf(HasSubstr("thread 31: write"),
                    HasSubstr("races with the read by several lanes of warp 0")));
  EXPECT_THAT(
      MessageInAscendingOrder(kGlobalFaults, 3, {.grid_x = 3, .threads = 32}),
      AllOf(HasSubstr("block (2, 0, 0)"), HasSubstr("races with the read by several blocks")));
}

TEST(AccessCheckerTest, AddsRaceWithEverythingButAdds) {
  ExpectClean(kSharedFaults, 50);
  ExpectClean(kGlobalFaults, 5, {.grid_x = 3, .threads = 32});
  for (const int which : {51, 52}) {
    ExpectFault(kSharedFaults, which, HasSubstr("races with the "));
  }
  EXPECT_THAT(MessageInAscendingOrder(kSharedFaults, 51),
              AllOf(HasSubstr("read of 4 bytes"), HasSubstr("races with the add by thread ")));
  EXPECT_THAT(MessageInAscendingOrder(kSharedFaults, 53),
              AllOf(HasSubstr("add of 4 bytes"), HasSubstr("races with the read by thread ")));
  EXPECT_THAT(MessageInAscendingOrder(kSharedFaults, 54),
              AllOf(HasSubstr("add of 4 bytes"), HasSubstr("races with the write by thread ")));
  ExpectFault(kSharedFaults, 55, HasSubstr("is of bytes that nobody has written"));
  ExpectFault(kSharedFaults, 56, HasSubstr("is misaligned"));
  ExpectFault(kGlobalFaults, 6, HasSubstr("races with the "), {.grid_x = 3, .threads = 32});
}

TEST(AccessCheckerTest, ReportsARaceOfRandomProgramsExactlyWhereThereIsOne) {
  using emulated_kernels::ProgramStep;
  struct Access {
    int block, thread, phase, at, bytes;
    bool write;
  };
  int races = 0;
  constexpr int kPrograms = 200, kBlocks = 2;
  for (int program = 0; program < kPrograms; ++program) {
    std::mt19937 random(program);
    const int phases = 2 + random() % 4;
    const bool global = random() % 2 == 1;
    std::vector<uint32_t> in = {static_cast<uint32_t>(phases)};
    std::vector<uint32_t> ends;
    std::vector<Access> accesses;
    for (int phase = 0; phase < phases; ++phase) {
      ends.push_back(random() % 3);
      in.push_back(ends.back());
      for (int i = 0; i < kBlocks * 64; ++i) {
        const int bytes = 1 << random() % 3;
        const Access access{i / 64, i % 64,
                            phase,  static_cast<int>(random() % 16) / bytes * bytes,
                            bytes,  random() % 3 == 0};
        const bool acts = random() % 70 == 0;
        in.push_back(acts ? ProgramStep::Encode(access.at, access.write, bytes) : 0);
        if (acts) accesses.push_back(access);
      }
    }
    // Finds races by their definition. Two accesses to one byte race, with three exceptions: both
    // only read the byte, one thread made both, or something orders them.
    bool race = false;
    for (const Access& a : accesses) {
      for (const Access& b : accesses) {
        if (!(a.write || b.write) || a.at + a.bytes <= b.at || b.at + b.bytes <= a.at) continue;
        if (a.block != b.block) {
          race |= global;
          continue;
        }
        bool ordered = a.thread == b.thread;
        for (int p = std::min(a.phase, b.phase); p < std::max(a.phase, b.phase); ++p) {
          ordered |= ends[p] == ProgramStep::kSyncThreads ||
                     (ends[p] == ProgramStep::kSyncWarp && a.thread / 32 == b.thread / 32);
        }
        race |= !ordered;
      }
    }
    races += race;
    Words out{};
    const ProbeParams params{out.word, in.data(), global ? 1 : 0};
    const absl::Status status =
        RunGrid(emulated_kernels::kProgram, {.grid_x = kBlocks, .threads = 64}, &params,
                {.seed = static_cast<uint64_t>(program)});
    ASSERT_EQ(status.ok(), !race) << "program " << program << ": " << status;
    if (race) {
      ASSERT_THAT(status.ToString(), HasSubstr("races with the "));
    }
  }
  EXPECT_GT(races, kPrograms / 5);
  EXPECT_LT(races, kPrograms * 4 / 5);
}

TEST(AccessCheckerTest, NothingOrdersBlocks) {
  const LaunchShape shape{.grid_x = 3, .threads = 32};
  ExpectFault(kGlobalFaults, 1, HasSubstr("races with the write by thread 0 of block ("), shape);
  ExpectFault(kGlobalFaults, 2,
              AnyOf(HasSubstr("races with the "), HasSubstr("nobody has written")), shape);
  ExpectFault(kGlobalFaults, 3, HasSubstr("races with the "), shape);
}

TEST(AccessCheckerTest, BytesThatNobodyHasWritten) {
  ExpectFault(kSharedFaults, 30, AllOf(HasSubstr("'fresh' + "), HasSubstr("nobody has written")));
  ExpectFault(kSharedFaults, 31, AllOf(HasSubstr("'fresh' + "), HasSubstr("nobody has written")));
  ExpectFault(kGlobalFaults, 4,
              AllOf(HasSubstr("of 2048 allocated"), HasSubstr("nobody has written")),
              {.grid_x = 3, .threads = 32});
}

TEST(AccessCheckerTest, WhatOneKernelWroteTheNextMayRead) {
  Words out{};
  MemoryMap map;
  map.Add(&out, sizeof(out), false);
  const ProbeParams params{out.word, out.word + 256, 0};
  const LaunchShape shape{.grid_x = 3, .threads = 32};
  EXPECT_THAT(RunGrid(kGlobalFaults, shape, &params, {.memory = &map}).ToString(),
              HasSubstr("nobody has written"));
  map.MarkWritten(out.word + 256, 32 * 4);  // like a copy from the host
  EXPECT_EQ(RunGrid(kGlobalFaults, shape, &params, {.memory = &map}), absl::OkStatus());
  const ProbeParams after{out.word + 128, out.word, 0};
  EXPECT_EQ(RunGrid(kGlobalFaults, shape, &after, {.memory = &map}), absl::OkStatus());
}

TEST(AccessCheckerTest, Bounds) {
  const LaunchShape shape{.threads = 64, .shared_bytes = 256};
  const auto expect = [&](int which, const std::string& a, const std::string& b) {
    ExpectFault(kBoundsFaults, which, AllOf(HasSubstr(a), HasSubstr(b)), shape);
  };
  expect(1, "'large' + 280", "outside every shared array");
  expect(2, "write of 2 bytes at 'small' + 6", "outside every shared array");
  expect(3, "'dynamic shared memory' + 256", "outside every shared array");
  expect(4, "read of 4 bytes at 0x", "outside every allocation");
  expect(5, "byte 2044 of 2048 allocated", "beyond the end of its allocation");
  expect(6, "parameters + 16", "is of the parameters");
  expect(7, "thread 6", "of another thread's stack");
  expect(8, "write of 4 bytes", "of the program itself");
  expect(9, "read of 4 bytes at 0x0 ", "outside every allocation");
  expect(11, "read of 4 bytes", "misaligned");
  expect(12, "read of 96 bytes", "beyond the end of its allocation");
  expect(13, "write of 13 bytes at 'small' + 0", "outside every shared array");
}

TEST(AccessCheckerTest, DataOfACopyIsNotTouchedBeforeItsWaitAndOthersBarrier) {
  ExpectFault(kCopies, 1, HasSubstr("copy may still bring, begun by thread"));
  ExpectFault(kCopies, 2,
              AnyOf(HasSubstr("races with the write"), HasSubstr("nobody has written")));
  ExpectFault(kCopies, 3, HasSubstr("copy may still bring, begun by thread"));
  ExpectFault(kCopies, 4, HasSubstr("not aligned to 16"));
  ExpectFault(kCopies, 5, HasSubstr("outside shared memory"));
  ExpectFault(kCopies, 8, HasSubstr("source was written before its wait"));
  ExpectFault(kCopies, 7, HasSubstr("copy may still bring, begun by thread"));
  // Runs case 40 with one order of threads only, unlike the cases above.
  EXPECT_THAT(MessageInAscendingOrder(kSharedFaults, 40), HasSubstr("races with the "));
}

TEST(AccessCheckerTest, ChecksCanBeTurnedOff) {
  Words in{}, out{};
  const ProbeParams params{out.word, in.word, 2};
  EXPECT_EQ(RunGrid(kSharedFaults, {.threads = 64}, &params, {.check = false}), absl::OkStatus());
  EXPECT_EQ(RunGrid(kSharedFaults, {.threads = 64}, &params, {}).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace baton::simt
