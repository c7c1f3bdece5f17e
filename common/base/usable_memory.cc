#include "common/base/usable_memory.h"

#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/control_groups.h"

namespace baton {
namespace {

// Version 1 of control groups writes "no limit" as the largest multiple of a page, which is above
// this value.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

using Numbers = std::map<std::string, uint64_t, std::less<>>;

// Returns the number in a file, or nothing if the file holds "max" or can't be read.
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// Parses a file with one "name 123" or "name: 123 kB" per line.
Numbers NumbersIn(const std::string& path) {
  Numbers numbers;
  std::ifstream file(path);
  std::string name, rest;
  for (uint64_t number = 0; file >> name >> number; std::getline(file, rest)) {
    numbers[name] = number;
  }
  return numbers;
}

uint64_t SumOf(const Numbers& numbers, std::initializer_list<absl::string_view> names) {
  uint64_t sum = 0;
  for (const absl::string_view name : names) {
    const auto found = numbers.find(name);
    if (found != numbers.end()) sum += found->second;
  }
  return sum;
}

void TakeIfLess(const UsableMemory& other, UsableMemory* min) {
  if (other.bytes < min->bytes) *min = other;
}

// Returns how much of a limit is left.
UsableMemory Left(uint64_t limit, uint64_t used, const std::string& name) {
  return {limit > used ? limit - used : 0, limit, used, name};
}

void ConsiderMachine(const std::string& root, UsableMemory* min) {
  constexpr uint64_t kKib = 1024;
  constexpr absl::string_view kPath = "/proc/meminfo";
  const Numbers numbers = NumbersIn(absl::StrCat(root, kPath));
  const auto available = numbers.find("MemAvailable:");
  if (available == numbers.end()) return;
  const uint64_t total = SumOf(numbers, {"MemTotal:"}) * kKib;
  const uint64_t bytes = available->second * kKib;
  TakeIfLess({bytes, total, total > bytes ? total - bytes : 0, std::string(kPath)}, min);
}

void ConsiderV2(const std::string& folder, const std::string& name, UsableMemory* min) {
  for (const absl::string_view file : {"/memory.max", "/memory.high"}) {
    const std::optional<uint64_t> limit = NumberIn(absl::StrCat(folder, file));
    if (!limit) continue;
    const uint64_t used = SumOf(NumbersIn(absl::StrCat(folder, "/memory.stat")),
                                {"anon", "shmem", "kernel_stack", "pagetables", "percpu", "sock",
                                 "vmalloc", "slab_unreclaimable"});
    TakeIfLess(Left(*limit, used, absl::StrCat(name, file)), min);
  }
}

void ConsiderV1(const std::string& folder, const std::string& name, UsableMemory* min) {
  constexpr absl::string_view kFile = "/memory.limit_in_bytes";
  const std::optional<uint64_t> limit = NumberIn(absl::StrCat(folder, kFile));
  if (!limit || *limit >= kNoLimit) return;
  const Numbers numbers = NumbersIn(absl::StrCat(folder, "/memory.stat"));
  // The "total_" values include the control groups below this one.
  const uint64_t used = SumOf(numbers, {"total_rss", "total_shmem"});
  TakeIfLess(Left(*limit, used, absl::StrCat(name, kFile)), min);
}

}  // namespace

UsableMemory ReadUsableMemory(const std::string& root) {
  UsableMemory min{.bytes = UINT64_MAX, .limit_bytes = UINT64_MAX, .limit = "none"};
  ConsiderMachine(root, &min);
  for (const ControlGroup& group : ControlGroupsOf(root, "memory")) {
    const std::string name = group.folder.substr(root.size());
    if (group.version == 2) {
      ConsiderV2(group.folder, name, &min);
    } else {
      ConsiderV1(group.folder, name, &min);
    }
  }
  return min;
}

}  // namespace baton
