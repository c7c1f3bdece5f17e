#pragma once

#include "absl/time/time.h"

namespace baton {

// Lets glibc give blocks of 1 MiB and more back to the system as soon as they are freed. Otherwise
// it keeps up to 64 MiB of them for each of several threads once the program has freed such a
// block. For programs that seldom need large blocks. Call it before other threads begin.
void GiveBackLargeBlocks();

// Gives memory that was freed back to the system. After a burst of large requests, glibc keeps what
// they took, for as long as one small block of the burst is in use above the rest. Call TrimIfDue
// again and again, on one thread.
class FreeMemory {
 public:
  // If glibc keeps more than 32 MiB that are free, gives them back, but at most once in 10 s.
  void TrimIfDue(absl::Time now);

 private:
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace baton
