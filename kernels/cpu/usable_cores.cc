#include "kernels/cpu/usable_cores.h"

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

#include <sched.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton::cpu {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// `quota` of every `period`, both in microseconds; 0 where it says none.
int Cores(absl::string_view quota, absl::string_view period) {
  int64_t used, every;
  if (!absl::SimpleAtoi(quota, &used) || !absl::SimpleAtoi(period, &every)) return 0;
  if (used <= 0 || every <= 0) return 0;
  return static_cast<int>(std::clamp<int64_t>(used / every, 1, 1 << 20));
}

// Version 2: "max 100000" or "270000 100000".
int CoresOfV2(const std::string& folder) {
  const std::vector<std::string> words = absl::StrSplit(FirstLine(folder + "/cpu.max"), ' ');
  return words.size() == 2 ? Cores(words[0], words[1]) : 0;
}

int CoresOfV1(const std::string& folder) {
  return Cores(FirstLine(folder + "/cpu.cfs_quota_us"), FirstLine(folder + "/cpu.cfs_period_us"));
}

// The least of a group and those above it. Inside a container the path may be one that only its
// host has; what is mounted is then the group itself.
int LeastUpwards(const std::string& mount, std::string path, int (*cores_of)(const std::string&)) {
  int least = 0;
  for (;;) {
    const int cores = cores_of(mount + path);
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace

int QuotaCores(const std::string& root) {
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  int least = 0;
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    int cores = 0;
    if (parts[0] == "0") {
      cores = LeastUpwards(mount, path, CoresOfV2);
    } else {
      const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
      if (std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
      cores = LeastUpwards(absl::StrCat(mount, "/cpu"), path, CoresOfV1);
    }
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
  }
  return least;
}

int UsableCores() {
  cpu_set_t mask;
  const int cores = sched_getaffinity(0, sizeof(mask), &mask) == 0
                        ? CPU_COUNT(&mask)
                        : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int quota = QuotaCores("");
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace baton::cpu
