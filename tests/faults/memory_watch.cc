#include "tests/faults/memory_watch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

// Returns the entries of a folder. Entries may change or disappear during the call.
std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    entries.push_back(at->path());
  }
  return entries;
}

}  // namespace

ResidentMemory ResidentMemoryOf(pid_t pid) {
  ResidentMemory memory;
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib = 0;
    words >> name >> kib;
    if (name == "RssAnon:") memory.own_bytes = kib << 10;
    if (name == "RssShmem:") memory.shared_bytes = kib << 10;
  }
  return memory;
}

void MemoryWatch::Sample(const std::string& role, pid_t pid, int answers) {
  if (answers < warm_up_) return;
  const ResidentMemory memory = ResidentMemoryOf(pid);
  if (memory.own_bytes == 0) return;
  Life& life = lives_[role][pid];
  if (life.samples++ == 0) life.first = memory;
  life.last = memory;
  life.max_shared_bytes = std::max(life.max_shared_bytes, memory.shared_bytes);
}

MemoryWatch::Growth MemoryWatch::Of(const std::string& role) const {
  Growth growth;
  const auto lives = lives_.find(role);
  if (lives == lives_.end()) return growth;
  for (const auto& [pid, life] : lives->second) {
    growth.max_own_bytes = std::max(growth.max_own_bytes, life.last.own_bytes);
    growth.max_shared_bytes = std::max(growth.max_shared_bytes, life.max_shared_bytes);
    if (life.samples < 2) continue;
    ++growth.processes;
    growth.own_bytes = std::max(growth.own_bytes, life.last.own_bytes - life.first.own_bytes);
  }
  return growth;
}

SharedMemory SharedMemoryOf(const std::set<pid_t>& makers, const std::string& folder) {
  SharedMemory memory;
  std::ifstream file("/proc/sysvipc/shm");
  for (std::string line; std::getline(file, line);) {
    // The columns of a line are key, shmid, perms, size, cpid and others.
    const std::vector<std::string> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    pid_t maker = 0;
    int64_t bytes = 0;
    if (columns.size() < 5 || !absl::SimpleAtoi(columns[4], &maker) || !makers.contains(maker) ||
        !absl::SimpleAtoi(columns[3], &bytes)) {
      continue;
    }
    ++memory.segments;
    memory.segment_bytes += bytes;
  }
  for (const std::filesystem::path& path : EntriesOf(folder)) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) memory.files.insert(path.filename());
  }
  return memory;
}

}  // namespace baton
