#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A control group of this process, or a parent of that group. Each may have limits.
struct ControlGroup {
  int version = 2;     // version of the control group interface: 1 or 2
  std::string folder;  // holds the files of the requested controller
};

// Returns the control groups that `controller` ("cpu", "memory") may use to limit a process: the
// process's own group first, then each parent up to the root of the hierarchy. The process is the
// one whose /proc/self and /sys/fs/cgroup lie under `root`; "" means this process. Version 1 of
// control groups has one hierarchy per controller, version 2 has one for all, and a system may have
// both versions.
// A folder in the list may be missing: in a container, the path in /proc/self/cgroup may exist only
// on the host. The group itself is then mounted at the root, which is the last entry of the list.
std::vector<ControlGroup> ControlGroupsOf(const std::string& root, absl::string_view controller);

}  // namespace baton
