#pragma once

#include "absl/time/time.h"

namespace baton {

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
