#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// The facts about one process that `status` shows.
struct ProcessRecord {
  std::string name;
  std::string address;  // empty if the process has no address yet
  pid_t pid = 0;        // 0 if it does not run now
  std::string note;     // reason why it does not serve; empty if it serves
};

// The folder through which a running cluster describes itself to other commands:
//   lock             locked by the supervising process as long as it lives
//   supervisor.pid   the process id of the supervising process
//   processes        one line per process: name, address, process id, note, separated by tabs
//   router.address   where clients reach the router; exists while the router has an address
//   http.address     where clients reach it by HTTP; exists while it has an address for HTTP
//   stopping         exists once the cluster is being stopped
//   NAME.pid         the process id of router, prefill-1, ...
//   log/NAME.log     the output of each process; log/supervisor.log: which process ended, and when
class StateFolder {
 public:
  explicit StateFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const;
  std::string LogFile(absl::string_view process) const;

  // Returns the id of the process that holds the lock, or 0.
  pid_t Owner() const;

  // Takes the lock, which this process then holds until it ends, and removes the files that an
  // earlier cluster left. Returns AlreadyExists if another process holds the lock. Returns
  // PermissionDenied, with the file's name, if a file can't be written.
  absl::Status Take();

  // For the owner of the lock. Writes the records, and the router's addresses for clients (empty if
  // it has none).
  void Write(const std::vector<ProcessRecord>& records, absl::string_view router_address,
             absl::string_view http_address) const;
  // For the owner of the lock. Marks the cluster as being stopped.
  void SetStopping() const;
  // For the owner of the lock, before it ends. Removes the files that describe running processes.
  // Logs stay.
  void Clear() const;

  // For any process. These functions return what the last Write() wrote.
  std::vector<ProcessRecord> Read() const;
  std::string RouterAddress() const;
  std::string HttpAddress() const;
  // For any process. Returns true if the cluster that holds the lock is being stopped.
  bool Stopping() const;

 private:
  const std::string path_;
};

// Returns $BATON_STATE if it is set, and otherwise the folder "baton" in $XDG_STATE_HOME or
// ~/.local/state.
std::string DefaultStateFolder();

}  // namespace baton
