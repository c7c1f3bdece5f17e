#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// What a process writes to standard error: copied to a file, and kept line by line for a test to
// wait on. Any thread.
class CapturedLog {
 public:
  // Reads `pipe` on a thread of its own and closes it at its end; appends to `file` and closes it.
  CapturedLog(int pipe, int file);
  // The process has ended, or the pipe's other end would be waited for.
  ~CapturedLog();

  // Lines so far.
  size_t size() const;
  // Line `i`, waited for. DeadlineExceeded after `timeout`; Unavailable when the log ended before.
  absl::StatusOr<std::string> Line(size_t i, absl::Duration timeout) const;
  // The first line from number `from` on that has `text` in it; statuses as above.
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

// The value of ` name=` in a line of a log; empty when there is none.
absl::string_view FieldOf(absl::string_view line, absl::string_view name);

}  // namespace baton
