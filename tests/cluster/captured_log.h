#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// Captures the standard error of a process: copies it to a file, and keeps its lines, so that a
// test can wait for a line. Any thread.
class CapturedLog {
 public:
  // Starts a thread that reads `pipe` to its end and appends everything to `file`. The thread then
  // closes both file descriptors.
  CapturedLog(int pipe, int file);
  // Waits for the end of the pipe, so the process must have ended before this call.
  ~CapturedLog();

  // Returns the number of lines so far.
  size_t size() const;
  // Returns line `i`, and waits for it if necessary. Returns DeadlineExceeded after `timeout`, or
  // Unavailable if the log ended before line `i`.
  absl::StatusOr<std::string> Line(size_t i, absl::Duration timeout) const;
  // Returns the first line that contains `text`, from line number `from` on. Waits as Line() does,
  // and returns the same errors.
  absl::StatusOr<std::string> WaitFor(absl::string_view text, absl::Duration timeout,
                                      size_t from = 0) const;

 private:
  void Copy(int pipe, int file);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Returns the value after ` name=` in a line of a log, or an empty text if the line has no such
// field.
absl::string_view FieldOf(absl::string_view line, absl::string_view name);

}  // namespace baton
