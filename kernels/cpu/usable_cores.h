#pragma once

#include <string>

namespace baton::cpu {

// Returns the number of cores that this process may keep busy: those of its affinity mask, or fewer
// if its control group or a parent group has a quota of processor time (a container's limit). A
// quota of 2.7 cores gives 2: if a process has more threads than its quota, all of them are stopped
// together for most of every period. Any thread. Reads files of /proc and /sys each time; files
// that can't be read count as no quota. Returns at least 1.
int UsableCores();

// Returns the quota of the process whose /proc/self and /sys/fs/cgroup lie under `root`, in cores,
// rounded down, at least 1. Returns 0 if there is no quota or if it can't be read. Any thread.
// Supports both versions of control groups.
int QuotaCores(const std::string& root);

}  // namespace baton::cpu
