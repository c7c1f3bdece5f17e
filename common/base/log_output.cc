#include "common/base/log_output.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace baton {

LogOutput::LogOutput(int fd, bool open_again) : fd_(fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) return;
  if (S_ISSOCK(info.st_mode)) {
    kind_ = Kind::kSocket;
    return;
  }
  if (open_again) {
    own_fd_ = open(absl::StrCat("/proc/self/fd/", fd).c_str(),
                   O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }
  kind_ = own_fd_ >= 0 ? Kind::kOwnDescriptor : Kind::kPolled;
}

LogOutput::~LogOutput() {
  if (own_fd_ >= 0) close(own_fd_);
}

size_t LogOutput::Try(absl::string_view text) {
  ssize_t written = 0;
  do {
    switch (kind_) {
      case Kind::kFile:
        written = write(fd_, text.data(), text.size());
        break;
      case Kind::kSocket:
        written = send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
      case Kind::kOwnDescriptor:
        written = write(own_fd_, text.data(), text.size());
        break;
      case Kind::kPolled:
        return TryPolled(text);
    }
  } while (written < 0 && errno == EINTR);
  return written < 0 ? 0 : static_cast<size_t>(written);
}

size_t LogOutput::TryPolled(absl::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) break;
    // A pipe that poll finds writable has room for PIPE_BUF bytes (pipe(7)).
    const ssize_t written =
        write(fd_, text.data() + done, std::min<size_t>(text.size() - done, PIPE_BUF));
    if (written < 0 && errno != EINTR) break;
    done += static_cast<size_t>(std::max<ssize_t>(written, 0));
  }
  return done;
}

void LogOutput::Write(absl::string_view line,
                      absl::FunctionRef<std::string(uint64_t dropped)> lost) {
  MutexLock lock(&mutex_);
  if (unsaid_ > 0) {
    const std::string said = absl::StrCat(cut_ ? "\n" : "", lost(unsaid_));
    const size_t written = Try(said);
    if (written < said.size()) {
      cut_ |= written > 0;
      ++unsaid_;
      ++dropped_;
      return;
    }
    unsaid_ = 0;
    cut_ = false;
  }
  const size_t written = Try(line);
  if (written == line.size()) return;
  cut_ = written > 0;
  ++unsaid_;
  ++dropped_;
}

}  // namespace baton
