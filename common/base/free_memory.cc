#include "common/base/free_memory.h"

#include <cstddef>

#include <malloc.h>

namespace baton {
namespace {

constexpr size_t kKeep = 32 << 20;
constexpr absl::Duration kEvery = absl::Seconds(10);

constexpr int kLargeBlock = 1 << 20;
constexpr int kKeepAtEnd = 8 << 20;  // bytes, for each heap

}  // namespace

void GiveBackLargeBlocks() {
#ifdef __GLIBC__
  // To set one of these ends glibc's own adaptation of both.
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, kKeepAtEnd);
#endif
}

void FreeMemory::TrimIfDue(absl::Time now) {
  if (now - last_ < kEvery) return;
  last_ = now;
#ifdef __GLIBC__
  if (mallinfo2().fordblks > kKeep) malloc_trim(0);
#endif
}

}  // namespace baton
