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

// Returns the control groups whose limits for `controller` ("cpu", "memory") apply to a process:
// the process's own group first, then each parent up to the root of the hierarchy. `root` is a
// folder that holds the /proc/self and /sys/fs/cgroup of the process; "" means this process.
// Version 1 of control groups has one hierarchy per controller, version 2 has one for all, and a
// system may have both versions.
// A folder in the list may be missing: in a container, the path in /proc/self/cgroup may exist only
// on the host. The group itself is then mounted at the root, which is the last entry of the list.
std::vector<ControlGroup> ControlGroupsOf(const std::string& root, absl::string_view controller);

}  // namespace baton
