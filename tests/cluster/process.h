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

// A program that runs beside a test. When the test ends, the program is killed, even if the test
// crashes.
class Process {
 public:
  // Starts `arguments[0]` with the other arguments. Its standard error goes to log() and is
  // appended to the file `log_path`. Its standard output goes to a pipe that WaitForLine reads.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::vector<std::string>& arguments,
                                                        const std::string& log_path);
  // Kills the program if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Standard error of the program since its start.
  const CapturedLog& log() const { return log_; }
  // Waits for a line of standard output that begins with `prefix`, and returns the rest of the
  // line. Returns DeadlineExceeded after `timeout`, or Unavailable if the program ended without
  // such a line.
  absl::StatusOr<std::string> WaitForLine(absl::string_view prefix, absl::Duration timeout);
  void Signal(int signal_number);
  // Waits for the program's end. Returns its exit status, or 128 + the number of the signal that
  // ended it. Returns DeadlineExceeded after `timeout`.
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
  // The last member, so that it is destroyed before all others. Its destructor waits for the end of
  // the process's output, which comes because ~Process has ended the process.
  CapturedLog log_;
};

}  // namespace baton
