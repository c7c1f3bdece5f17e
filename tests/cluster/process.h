#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/cluster/captured_log.h"

namespace baton {

// A program run beside a test. It dies with the test, however that ends.
class Process {
 public:
  // Starts `arguments[0]` with the rest; standard error goes to log() and `log_path` (appended),
  // standard output to a pipe that WaitForLine reads.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::vector<std::string>& arguments,
                                                        const std::string& log_path);
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Its standard error, from its start on.
  const CapturedLog& log() const { return log_; }
  // The rest of the first line of standard output that begins with `prefix`. DeadlineExceeded after
  // `timeout`; Unavailable when the program ended before it wrote one.
  absl::StatusOr<std::string> WaitForLine(absl::string_view prefix, absl::Duration timeout);
  void Signal(int signal_number);
  // Waits for its end: the exit status, or 128 + the signal that ended it. DeadlineExceeded after
  // `timeout`.
  absl::StatusOr<int> Wait(absl::Duration timeout);

 private:
  Process(pid_t pid, int pidfd, int output, int error, int log_file)
      : pid_(pid), pidfd_(pidfd), output_(output), log_(error, log_file) {}
  const pid_t pid_;
  const int pidfd_;
  const int output_;
  std::string unread_;
  bool reaped_ = false;
  int exit_status_ = 0;
  CapturedLog log_;  // last: goes first, after the process
};

}  // namespace baton
