#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <sys/types.h>

namespace baton {

// Resident memory of a process, from /proc/PID/status. All values are zero if the process is gone.
struct ResidentMemory {
  int64_t own_bytes = 0;  // Heap and stacks: RssAnon.
  // RssShmem: shared memory of the process's own KV pool, and the parts of its peers' pools that it
  // has mapped.
  int64_t shared_bytes = 0;
};
ResidentMemory ResidentMemoryOf(pid_t pid);

// Measures the memory growth of each process while the process works. Growth is counted from the
// first sample after warm-up to the latest sample.
class MemoryWatch {
 public:
  // Samples of a process count only after the process has answered `warm_up` requests.
  explicit MemoryWatch(int warm_up) : warm_up_(warm_up) {}

  void Sample(const std::string& role, pid_t pid, int answers);

  struct Growth {
    int processes = 0;          // Number of processes with two or more samples after warm-up.
    int64_t own_bytes = 0;      // Max growth of a single process.
    int64_t max_own_bytes = 0;  // Max over the latest samples of all processes.
    int64_t max_shared_bytes = 0;
  };
  Growth Of(const std::string& role) const;

 private:
  struct Life {
    ResidentMemory first, last;
    int64_t max_shared_bytes = 0;
    int samples = 0;
  };
  const int warm_up_;
  std::map<std::string, std::map<pid_t, Life>> lives_;
};

// Shared memory that processes have made and not removed: System V segments, and files in a folder
// that only these processes use.
struct SharedMemory {
  int segments = 0;  // Number of System V segments that the processes `makers` made.
  int64_t segment_bytes = 0;
  std::set<std::string> files;  // Names of the files in the folder.
};
SharedMemory SharedMemoryOf(const std::set<pid_t>& makers, const std::string& folder);

}  // namespace baton
