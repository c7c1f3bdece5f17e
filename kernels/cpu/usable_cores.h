#pragma once

#include <string>

namespace baton::cpu {

// Cores that this process may keep busy: those of its affinity mask, or fewer where its control
// group or one above has a quota of processor time (a container's limit). A quota of 2.7 cores
// gives 2: threads beyond a quota are stopped together, for most of every period.
int UsableCores();

// The quota of the process whose /proc/self and /sys/fs/cgroup lie under `root`, in cores rounded
// down, at least 1; 0 where there is none. Both versions of control groups.
int QuotaCores(const std::string& root);

}  // namespace baton::cpu
