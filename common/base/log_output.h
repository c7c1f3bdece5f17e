#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace baton {

// Writes the lines of a log to a file descriptor, and never waits for whoever reads it. If a pipe,
// a socket or a terminal takes no more, lines are dropped and counted. The first line that can be
// written after that is preceded by a line with their number. Any thread.
class LogOutput {
 public:
  // `fd` must stay open. It stays as it is: other processes may use the same pipe, so its mode is
  // not changed. Tests set
  // `open_again` to false; the object then behaves as if it may not open the pipe again.
  explicit LogOutput(int fd, bool open_again = true);
  ~LogOutput();
  LogOutput(const LogOutput&) = delete;
  LogOutput& operator=(const LogOutput&) = delete;

  // Writes `line`, which ends with a line feed. `lost` returns the line that says how many lines
  // were dropped.
  void Write(absl::string_view line, absl::FunctionRef<std::string(uint64_t dropped)> lost);
  // Number of lines dropped so far.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  // Ways to write to the descriptor without waiting. kPolled: a pipe or terminal that this process
  // may not open again. It gets a few bytes at a time, for which poll says that there is room. Only
  // if another process takes this room between poll and write, the write waits.
  enum class Kind { kFile, kSocket, kOwnDescriptor, kPolled };
  // Writes without waiting. Returns the number of bytes that were written.
  size_t Try(absl::string_view text);
  size_t TryPolled(absl::string_view text);

  const int fd_;
  int own_fd_ = -1;  // for kOwnDescriptor: the same pipe or terminal in non-blocking mode
  Kind kind_ = Kind::kFile;
  std::atomic<uint64_t> dropped_{0};
  Mutex mutex_;
  uint64_t unsaid_ ABSL_GUARDED_BY(mutex_) = 0;  // dropped lines that no line has told yet
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;     // the last line that was written is incomplete
};

}  // namespace baton
