#pragma once

#include <cstdint>
#include <string>

namespace baton {

// Memory that this process may still use before the kernel would have to kill a process.
struct UsableMemory {
  uint64_t bytes = 0;        // still available
  uint64_t limit_bytes = 0;  // the limit that leaves the fewest bytes
  uint64_t used_bytes = 0;   // memory that counts against `limit_bytes`
  // Path of the file that holds the limit: a file of a control group, or /proc/meminfo for the
  // machine.
  std::string limit;
};

// Reads the memory limits of the machine and of the process's control groups, of version 1 or 2, up
// to the root group. The limit that leaves the fewest bytes decides.
// Anonymous and shared memory counts as used, and so does kernel memory that can't be reclaimed.
// The page cache counts as free, so a caller that maps files must subtract their size. `root` is
// the folder in which /proc and /sys are read; "" means the system's own files. On a system without
// these files `bytes` is UINT64_MAX.
UsableMemory ReadUsableMemory(const std::string& root = "");

}  // namespace baton
