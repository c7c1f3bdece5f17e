#include "kv_transfer/memory_budget.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

size_t MachineAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  size_t kib = 0;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

// "max" and absent files read as no limit.
size_t ReadLimit(const char* path) {
  std::ifstream file(path);
  size_t bytes = 0;
  return file >> bytes ? bytes : kUnlimited;
}

size_t GroupAvailable() {
  const size_t limit = ReadLimit("/sys/fs/cgroup/memory.max");
  const size_t used = ReadLimit("/sys/fs/cgroup/memory.current");
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  return limit > used ? limit - used : 0;
}

}  // namespace

size_t AvailableMemoryBytes() { return std::min(MachineAvailable(), GroupAvailable()); }

absl::Status CheckMemoryFor(size_t bytes) {
  const size_t available = AvailableMemoryBytes();
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("KV memory of ", bytes, " bytes (", bytes >> 20,
                                                   " MiB) does not fit: ", available, " bytes (",
                                                   available >> 20, " MiB) are available"));
}

}  // namespace baton
