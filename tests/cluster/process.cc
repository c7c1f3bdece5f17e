#include "tests/cluster/process.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

// Returns true if `fd` can be read, or its other end was closed, before the time `until`.
bool WaitReadable(int fd, absl::Time until) {
  while (true) {
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(until - absl::Now()));
    pollfd poll_fd = {.fd = fd, .events = POLLIN};
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready == 0 && absl::Now() >= until) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Process>> Process::Start(const std::vector<std::string>& arguments,
                                                        const std::string& log_path) {
  int output[2], error[2];
  if (pipe2(output, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  if (pipe2(error, O_CLOEXEC) != 0) {
    close(output[0]);
    close(output[1]);
    return absl::ErrnoToStatus(errno, "pipe");
  }
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", log_path));
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(output[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    dprintf(STDERR_FILENO, "exec %s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }
  close(output[1]);
  close(error[1]);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  return std::unique_ptr<Process>(new Process(pid, pidfd, output[0], error[0], log));
}

Process::~Process() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
  }
  close(pidfd_);
  close(output_);
}

absl::StatusOr<std::string> Process::WaitForLine(absl::string_view prefix, absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  while (true) {
    for (size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      if (absl::StartsWith(line, prefix)) return line.substr(prefix.size());
    }
    if (!WaitReadable(output_, until)) {
      return absl::DeadlineExceededError(
          absl::StrCat("no line '", prefix, "...' from process ", pid_));
    }
    char bytes[4096];
    const ssize_t got = read(output_, bytes, sizeof(bytes));
    if (got <= 0)
      return absl::UnavailableError(
          absl::StrCat("process ", pid_, " ended without a line '", prefix, "'"));
    unread_.append(bytes, static_cast<size_t>(got));
  }
}

void Process::Signal(int signal_number) {
  if (!reaped_) kill(pid_, signal_number);
}

absl::StatusOr<int> Process::Wait(absl::Duration timeout) {
  if (reaped_) return exit_status_;
  if (!WaitReadable(pidfd_, absl::Now() + timeout)) {
    return absl::DeadlineExceededError(absl::StrCat("process ", pid_, " still runs"));
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_status_;
}

}  // namespace baton
