#pragma once

#include <cstdint>
#include <string>

namespace baton {

// How much more memory this process may use before the kernel would have to kill something.
struct UsableMemory {
  uint64_t bytes = 0;        // still to be had
  uint64_t limit_bytes = 0;  // the limit that leaves the least
  uint64_t used_bytes = 0;   // what counts against that limit
  // Where that limit is written: a file of a control group, or /proc/meminfo for the machine.
  std::string limit;
};

// Looks at the machine and at every control group of the process, up to the root, of versions 1 and
// 2: the one that leaves the least decides. Anonymous and shared memory counts as used, as does
// memory of the kernel that can't be reclaimed. The page cache counts as free: files that are
// mapped have to be subtracted by whoever maps them. `root` holds the /proc and /sys that are read;
// "" is the system's own. On a system without these files `bytes` is UINT64_MAX.
UsableMemory ReadUsableMemory(const std::string& root = "");

}  // namespace baton
