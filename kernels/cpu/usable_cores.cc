#include "kernels/cpu/usable_cores.h"

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

#include <sched.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/control_groups.h"

namespace baton::cpu {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// Returns the number of cores that a control group may use. Its quota is `quota` microseconds of
// processor time in every `period` microseconds. Returns 0 if the texts are not two positive
// numbers.
int Cores(absl::string_view quota, absl::string_view period) {
  int64_t used, every;
  if (!absl::SimpleAtoi(quota, &used) || !absl::SimpleAtoi(period, &every)) return 0;
  if (used <= 0 || every <= 0) return 0;
  return static_cast<int>(std::clamp<int64_t>(used / every, 1, 1 << 20));
}

// Reads the quota of control groups version 2. The file has quota and period in microseconds, such
// as "270000 100000", or "max 100000" if there is no quota.
int CoresOfV2(const std::string& folder) {
  const std::vector<std::string> words = absl::StrSplit(FirstLine(folder + "/cpu.max"), ' ');
  return words.size() == 2 ? Cores(words[0], words[1]) : 0;
}

int CoresOfV1(const std::string& folder) {
  return Cores(FirstLine(folder + "/cpu.cfs_quota_us"), FirstLine(folder + "/cpu.cfs_period_us"));
}

}  // namespace

int QuotaCores(const std::string& root) {
  int min = 0;
  for (const ControlGroup& group : ControlGroupsOf(root, "cpu")) {
    const int cores = group.version == 2 ? CoresOfV2(group.folder) : CoresOfV1(group.folder);
    if (cores > 0 && (min == 0 || cores < min)) min = cores;
  }
  return min;
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
