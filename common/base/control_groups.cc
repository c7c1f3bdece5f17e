#include "common/base/control_groups.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

void AddUpwards(int version, const std::string& mount, std::string path,
                std::vector<ControlGroup>* groups) {
  for (;;) {
    groups->push_back({version, mount + path});
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

std::vector<ControlGroup> ControlGroupsOf(const std::string& root, absl::string_view controller) {
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  std::ifstream lines(absl::StrCat(root, "/proc/self/cgroup"));
  std::vector<ControlGroup> groups;
  for (std::string line; std::getline(lines, line);) {
    // A line of /proc/self/cgroup is "0::/path" for version 2 and "4:cpu,cpuacct:/path" for version
    // 1.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    if (parts[0] == "0") {
      AddUpwards(2, mount, path, &groups);
      // On a system with both versions of control groups, systemd mounts version 2 at this folder.
      AddUpwards(2, absl::StrCat(mount, "/unified"), path, &groups);
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    AddUpwards(1, absl::StrCat(mount, "/", controller), path, &groups);
  }
  return groups;
}

}  // namespace baton
