#include "common/base/free_memory.h"

#include <cstddef>

#include <malloc.h>

namespace baton {
namespace {

constexpr size_t kKeep = 32 << 20;
constexpr absl::Duration kEvery = absl::Seconds(10);

}  // namespace

void FreeMemory::TrimIfDue(absl::Time now) {
  if (now - last_ < kEvery) return;
  last_ = now;
#ifdef __GLIBC__
  if (mallinfo2().fordblks > kKeep) malloc_trim(0);
#endif
}

}  // namespace baton
