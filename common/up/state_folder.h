#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// What `status` shows of one process.
struct ProcessRecord {
  std::string name;
  std::string address;  // empty: none yet
  pid_t pid = 0;        // 0: it does not run now
  std::string note;     // why it does not serve, if it does not
};

// The folder in which a running cluster tells other commands of itself:
//   lock             held by the process that supervises, as long as it lives
//   supervisor.pid   its process id
//   processes        a line for each process: name, address, process id, note, with tabs between
//   router.address   where clients reach the router, while it has an address
//   stopping         there once the cluster is being stopped
//   NAME.pid         the process id of router, prefill-1, ...
//   log/NAME.log     what each process says; log/supervisor.log: what ended and when
class StateFolder {
 public:
  explicit StateFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const;
  std::string LogFile(absl::string_view process) const;

  // The process that holds the lock, or 0.
  pid_t Owner() const;

  // Takes the lock for this process, which keeps it until its end, and clears away what an earlier
  // cluster left. AlreadyExists if a process holds it. PermissionDenied and others name the file
  // that can't be written.
  absl::Status Take();

  // The owner's: writes the records, and the router's address for clients (empty: none).
  void Write(const std::vector<ProcessRecord>& records, absl::string_view router_address) const;
  // The owner's: the cluster is being stopped from now on.
  void SetStopping() const;
  // The owner's, before it ends: takes away what tells of running processes. Logs stay.
  void Clear() const;

  // Any process's: what Write() wrote last.
  std::vector<ProcessRecord> Read() const;
  std::string RouterAddress() const;
  // Any process's: the cluster that holds the lock is being stopped.
  bool Stopping() const;

 private:
  const std::string path_;
};

// The folder that $BATON_STATE names; else baton in $XDG_STATE_HOME or ~/.local/state.
std::string DefaultStateFolder();

}  // namespace baton
