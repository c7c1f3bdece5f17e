#include "common/up/child_process.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

struct Pipe {
  int read = -1, write = -1;
  ~Pipe() {
    CloseWrite();
    if (read >= 0) close(read);
  }
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  void CloseWrite() {
    if (write >= 0) close(write);
    write = -1;
  }
};

absl::Status Failure(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat("can't start ", what, ": ", strerror(error)));
}

std::vector<char*> ArgumentVector(const ChildOptions& options) {
  std::vector<char*> argv = {const_cast<char*>(options.program.c_str())};
  for (const std::string& argument : options.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  return argv;
}

// Runs in the child, between fork() and the new program. Writes an errno to `errors` if exec fails.
// `output` replaces standard output and, with `errors_too`, standard error.
[[noreturn]] void Become(char* const* argv, pid_t parent, bool own_group, int output,
                         bool errors_too, int errors) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (own_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);  // the parent died before prctl()
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (output >= 0 && errors_too) dup2(output, STDERR_FILENO);
  execv(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(errors, &error, sizeof error);
  _exit(127);
}

absl::StatusOr<pid_t> Fork(const ChildOptions& options, int output, bool errors_too) {
  Pipe errors;  // a successful exec closes this pipe
  if (!errors.Open()) return Failure(options.program, errno);
  const std::vector<char*> argv = ArgumentVector(options);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Failure(options.program, errno);
  if (child == 0) {
    Become(argv.data(), parent, options.own_group, output, errors_too, errors.write);
  }
  errors.CloseWrite();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(errors.read, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof error) return child;
  waitpid(child, nullptr, 0);
  return Failure(options.program, error);
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildOptions& options) {
  if (options.log.empty()) return Fork(options, -1, false);
  const int log = open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Failure(absl::StrCat(options.program, ", whose log is ", options.log), errno);
  absl::StatusOr<pid_t> child = Fork(options, log, true);
  close(log);
  return child;
}

absl::StatusOr<std::string> OutputOf(const std::string& program,
                                     const std::vector<std::string>& arguments) {
  Pipe output;
  if (!output.Open()) return Failure(program, errno);
  ASSIGN_OR_RETURN(const pid_t child, Fork({program, arguments}, output.write, false));
  output.CloseWrite();
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(output.read, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::UnavailableError(absl::StrCat(program, " ", absl::StrJoin(arguments, " "),
                                               " failed; the program is broken, or of another "
                                               "version: build or install all programs again"));
  }
  return text;
}

std::string OwnFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace baton
