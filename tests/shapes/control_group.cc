#include "tests/shapes/control_group.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/control_groups.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// Returns false if the kernel refuses the write.
bool WriteTo(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file.good();
}

// Returns the number after `name` in a file with lines of the form "name number". Returns 0 if no
// line has this name.
int64_t NumberOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  while (file >> word >> number) {
    if (word == name) return number;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LimitedGroup>> LimitedGroup::Make(uint64_t limit_bytes) {
  const std::string name = absl::StrCat("baton-shapes-", getpid());
  std::string why = "no control group has the memory controller";
  for (const ControlGroup& group : ControlGroupsOf("", "memory")) {
    const bool v1 = group.version == 1;
    const std::string limit = v1 ? "/memory.limit_in_bytes" : "/memory.max";
    // In version 2, only a group without processes can have child groups. So the new group is made
    // at the top, not below the group of this process.
    const std::string parent = v1 ? group.folder : "/sys/fs/cgroup";
    if (v1 ? !fs::exists(parent + limit) : !fs::exists(parent + "/cgroup.controllers")) continue;
    if (!v1) WriteTo(parent + "/cgroup.subtree_control", "+memory");
    const std::string folder = absl::StrCat(parent, "/", name);
    std::error_code error;
    fs::create_directory(folder, error);
    if (error) {
      why = absl::StrCat(folder, ": ", error.message());
      continue;
    }
    std::unique_ptr<LimitedGroup> made(new LimitedGroup(group.version, folder, group.folder));
    if (WriteTo(folder + limit, absl::StrCat(limit_bytes))) return made;
    why = absl::StrCat(folder, limit, ": ", std::strerror(errno));
  }
  return absl::FailedPreconditionError(why);
}

LimitedGroup::~LimitedGroup() {
  WriteTo(home_ + "/cgroup.procs", absl::StrCat(getpid()));
  std::error_code ignored;
  fs::remove(folder_, ignored);
}

absl::Status LimitedGroup::Enter() {
  if (WriteTo(folder_ + "/cgroup.procs", absl::StrCat(getpid()))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(folder_, "/cgroup.procs: ", std::strerror(errno)));
}

int64_t LimitedGroup::kills() const {
  return NumberOf(folder_ + (version_ == 1 ? "/memory.oom_control" : "/memory.events"), "oom_kill");
}

uint64_t LimitedGroup::max_used_bytes() const {
  std::ifstream file(folder_ + (version_ == 1 ? "/memory.max_usage_in_bytes" : "/memory.peak"));
  uint64_t bytes = 0;
  file >> bytes;
  return bytes;
}

}  // namespace baton
