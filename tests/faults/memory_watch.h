#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <sys/types.h>

namespace baton {

// Memory that a process has resident, from /proc/PID/status; zeros once it is gone.
struct ResidentMemory {
  int64_t own_bytes = 0;     // RssAnon: heap and stacks
  int64_t shared_bytes = 0;  // RssShmem: its KV pool, and what it has mapped of its peers'
};
ResidentMemory ResidentMemoryOf(pid_t pid);

// How much the memory of processes grows while they work, each process for itself: from its first
// sample after warm-up to its latest.
class MemoryWatch {
 public:
  // Samples taken before a process has answered so many requests are left out.
  explicit MemoryWatch(int warm_up) : warm_up_(warm_up) {}

  void Sample(const std::string& role, pid_t pid, int answers);

  struct Growth {
    int processes = 0;           // that were sampled twice or more after warm-up
    int64_t own_bytes = 0;       // the most that any of them has grown
    int64_t most_own_bytes = 0;  // that any had
    int64_t most_shared_bytes = 0;
  };
  Growth Of(const std::string& role) const;

 private:
  struct Life {
    ResidentMemory first, last;
    int64_t most_shared_bytes = 0;
    int samples = 0;
  };
  const int warm_up_;
  std::map<std::string, std::map<pid_t, Life>> lives_;
};

// What processes have taken of System V shared memory and of /dev/shm and not given back.
struct SharedMemory {
  int segments = 0;  // System V, made by `makers`
  int64_t segment_bytes = 0;
  std::set<std::string> files;  // names in /dev/shm that no other process has open or mapped
};
SharedMemory SharedMemoryOf(const std::set<pid_t>& makers);

}  // namespace baton
