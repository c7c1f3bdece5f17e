#include "common/base/free_memory.h"

#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include <unistd.h>

#include "gtest/gtest.h"

namespace baton {
namespace {

// Returns the memory of this process that is in use, in bytes.
size_t Resident() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(FreeMemoryTest, GivesBackWhatABurstHasLeft) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
  GTEST_SKIP() << "this memory allocator is not glibc's";
#endif
  constexpr size_t kBlock = 16 << 10, kBurst = 128 << 20;
  std::vector<char*> blocks;
  for (size_t bytes = 0; bytes < kBurst; bytes += kBlock) {
    blocks.push_back(new char[kBlock]);
    std::memset(blocks.back(), 1, kBlock);
  }
  char* const last = blocks.back();  // stays, so that free() can't shrink the heap
  blocks.pop_back();
  for (char* const block : blocks) delete[] block;
  const size_t kept = Resident();
  FreeMemory memory;
  const absl::Time now = absl::UnixEpoch();
  memory.TrimIfDue(now);
  EXPECT_LT(Resident() + kBurst / 2, kept);
  delete[] last;
}

// glibc keeps a freed block of 24 MiB after it has seen one come and go, unless it is told not to.
TEST(FreeMemoryTest, LargeBlocksGoBackAtOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
  GTEST_SKIP() << "this memory allocator is not glibc's";
#endif
  GiveBackLargeBlocks();
  constexpr size_t kBlock = 24 << 20;
  const auto use_and_free = [] {
    const std::unique_ptr<char[]> block(new char[kBlock]);
    std::memset(block.get(), 1, kBlock);
    return Resident();
  };
  // In a thread other than the first, glibc uses another heap.
  std::thread([&] {
    for (int i = 0; i < 2; ++i) {
      const size_t used = use_and_free();
      EXPECT_LT(Resident() + kBlock / 2, used) << i;
    }
  }).join();
}

}  // namespace
}  // namespace baton
