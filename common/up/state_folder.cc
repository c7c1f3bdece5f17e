#include "common/up/state_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Replaces a file's content. Readers see either the whole old text or the whole new text.
void Replace(const std::string& path, absl::string_view text) {
  const std::string next = path + ".next";
  std::ofstream file(next);
  file << text;
  file.close();
  if (file.good()) rename(next.c_str(), path.c_str());
}

struct flock WholeFile(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Returns true if the file describes running processes. Other files, such as logs, outlive the
// cluster.
bool IsRunningState(const fs::path& path) {
  return path.extension() == ".pid" || path.extension() == ".next" ||
         path.filename() == "router.address" || path.filename() == "http.address" ||
         path.filename() == "processes" || path.filename() == "stopping";
}

void RemoveIf(const std::string& folder, bool (*chosen)(const fs::path&)) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (chosen(entry->path())) fs::remove(entry->path(), ignored);
  }
}

}  // namespace

std::string StateFolder::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string StateFolder::LogFile(absl::string_view process) const {
  return absl::StrCat(path_, "/log/", process, ".log");
}

pid_t StateFolder::Owner() const {
  const int file = open(File("lock").c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  struct flock lock = WholeFile(F_WRLCK);
  const bool asked = fcntl(file, F_GETLK, &lock) == 0;
  close(file);
  if (!asked || lock.l_type == F_UNLCK) return 0;
  if (lock.l_pid > 0) return lock.l_pid;
  int pid = 0;  // the kernel gives no process id if the owner is in another pid namespace
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(Contents(File("supervisor.pid"))), &pid) ? pid
                                                                                              : 1;
}

absl::Status StateFolder::Take() {
  std::error_code error;
  fs::create_directories(fs::path(path_) / "log", error);
  const auto refuse = [this](absl::string_view what, absl::string_view why) {
    return absl::PermissionDeniedError(absl::StrCat("can't write ", what, ": ", why,
                                                    "; $BATON_STATE names another folder for ",
                                                    "addresses, process ids and logs"));
  };
  if (error) return refuse(path_, error.message());
  // The file stays open and locked until this process ends.
  const int file = open(File("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return refuse(File("lock"), strerror(errno));
  struct flock lock = WholeFile(F_WRLCK);
  if (fcntl(file, F_SETLK, &lock) != 0) {
    const int why = errno;
    close(file);
    if (why != EAGAIN && why != EACCES) return refuse(File("lock"), strerror(why));
    return absl::AlreadyExistsError("another process holds the lock");
  }
  RemoveIf(path_, IsRunningState);
  RemoveIf(path_ + "/log", [](const fs::path& path) { return path.extension() == ".log"; });
  Replace(File("supervisor.pid"), absl::StrCat(getpid(), "\n"));
  return absl::OkStatus();
}

void StateFolder::Write(const std::vector<ProcessRecord>& records, absl::string_view router_address,
                        absl::string_view http_address) const {
  std::string lines;
  std::error_code ignored;
  for (const ProcessRecord& record : records) {
    absl::StrAppend(&lines, record.name, "\t", record.address, "\t", record.pid, "\t",
                    absl::StrReplaceAll(record.note, {{"\t", " "}, {"\n", " "}}), "\n");
    const std::string pid_file = File(absl::StrCat(record.name, ".pid"));
    if (record.pid > 0) {
      Replace(pid_file, absl::StrCat(record.pid, "\n"));
    } else {
      fs::remove(pid_file, ignored);
    }
  }
  Replace(File("processes"), lines);
  for (const auto& [name, address] : {std::make_pair("router.address", router_address),
                                      std::make_pair("http.address", http_address)}) {
    if (address.empty()) {
      fs::remove(File(name), ignored);
    } else {
      Replace(File(name), absl::StrCat(address, "\n"));
    }
  }
}

void StateFolder::SetStopping() const { Replace(File("stopping"), ""); }

void StateFolder::Clear() const { RemoveIf(path_, IsRunningState); }

std::vector<ProcessRecord> StateFolder::Read() const {
  std::vector<ProcessRecord> records;
  const std::string lines = Contents(File("processes"));
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    ProcessRecord record;
    if (parts.size() != 4 || !absl::SimpleAtoi(parts[2], &record.pid)) continue;
    record.name = parts[0];
    record.address = parts[1];
    record.note = parts[3];
    records.push_back(std::move(record));
  }
  return records;
}

std::string StateFolder::RouterAddress() const {
  return std::string(absl::StripAsciiWhitespace(Contents(File("router.address"))));
}

std::string StateFolder::HttpAddress() const {
  return std::string(absl::StripAsciiWhitespace(Contents(File("http.address"))));
}

bool StateFolder::Stopping() const {
  std::error_code ignored;
  return fs::exists(File("stopping"), ignored);
}

std::string DefaultStateFolder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string named = variable("BATON_STATE"); !named.empty()) return named;
  if (const std::string state = variable("XDG_STATE_HOME"); !state.empty()) {
    return state + "/baton";
  }
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.local/state/baton";
  return absl::StrCat("/tmp/baton-", getuid());
}

}  // namespace baton
