#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A control group that this process belongs to, or one above it: each may have limits.
struct ControlGroup {
  int version = 2;     // of its interface: 1 or 2
  std::string folder;  // with the files of the controller that was asked for
};

// The groups of the process whose /proc/self and /sys/fs/cgroup lie under `root` ("": this one)
// that `controller` ("cpu", "memory") may limit, from its own up to the root of each hierarchy.
// Version 1 has a hierarchy per controller, version 2 one for all, and a system may have both. A
// folder may be missing: inside a container the group's path may be one that only its host has, and
// what is mounted is then the group itself, which is the last of the list.
std::vector<ControlGroup> ControlGroupsOf(const std::string& root, absl::string_view controller);

}  // namespace baton
