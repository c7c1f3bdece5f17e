#include "tests/cluster/captured_log.h"

#include <cerrno>

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton {

CapturedLog::CapturedLog(int pipe, int file) : thread_([this, pipe, file] { Copy(pipe, file); }) {}

CapturedLog::~CapturedLog() { thread_.join(); }

void CapturedLog::Copy(int pipe, int file) {
  std::string rest;
  char bytes[4096];
  while (true) {
    const ssize_t got = read(pipe, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    [[maybe_unused]] const ssize_t written = write(file, bytes, static_cast<size_t>(got));
    rest.append(bytes, static_cast<size_t>(got));
    MutexLock lock(&mutex_);
    size_t begin = 0;
    for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n', begin)) {
      lines_.push_back(rest.substr(begin, end - begin));
      begin = end + 1;
    }
    rest.erase(0, begin);
    changed_.SignalAll();
  }
  close(pipe);
  close(file);
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.SignalAll();
}

size_t CapturedLog::size() const {
  MutexLock lock(&mutex_);
  return lines_.size();
}

absl::StatusOr<std::string> CapturedLog::Line(size_t i, absl::Duration timeout) const {
  const absl::Time until = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while (lines_.size() <= i) {
    const absl::Duration left = until - absl::Now();
    if (ended_)
      return absl::UnavailableError(absl::StrCat("the log ended at line ", lines_.size()));
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the log is at line ", lines_.size(), ": ",
                       lines_.empty() ? std::string() : lines_.back()));
    }
    changed_.WaitFor(&mutex_, left);
  }
  return lines_[i];
}

absl::StatusOr<std::string> CapturedLog::WaitFor(absl::string_view text, absl::Duration timeout,
                                                size_t from) const {
  const absl::Time until = absl::Now() + timeout;
  for (size_t i = from;; ++i) {
    absl::StatusOr<std::string> line = Line(i, until - absl::Now());
    if (!line.ok()) {
      return absl::Status(line.status().code(),
                          absl::StrCat("no line with '", text, "': ", line.status().message()));
    }
    if (absl::StrContains(*line, text)) return line;
  }
}

absl::string_view FieldOf(absl::string_view line, absl::string_view name) {
  const std::string wanted = absl::StrCat(" ", name, "=");
  const size_t at = line.find(wanted);
  if (at == line.npos) return "";
  const absl::string_view value = line.substr(at + wanted.size());
  return value.substr(0, value.find(' '));
}

}  // namespace baton
