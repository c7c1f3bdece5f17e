#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include <sys/types.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"

// For tests that run programs as their users do.
namespace baton {

// The result of a command.
struct Ended {
  int exit_status = 0;  // 128 + the signal's number where a signal ended it
  std::string output;   // standard output and standard error together
};

// Functions that a test has called while a command runs.
struct ShellWatch {
  std::function<void(pid_t)> on_start;  // the command's process id
  std::function<void(pid_t, const std::string&)>
      on_output;  // all the output so far, after each line
};

// Runs the command with sh, and waits until it has ended. The process id that a watch is told is
// the shell's: a command that begins with `exec` becomes its program's.
inline Ended RunShell(const std::string& command, const ShellWatch& watch = {}) {
  FILE* pipe = popen(absl::StrCat("exec 2>&1; echo $$; ", command).c_str(), "r");
  Ended ended;
  char buffer[4096];
  const pid_t pid = std::fgets(buffer, sizeof buffer, pipe) == nullptr ? 0 : std::atoi(buffer);
  if (watch.on_start) watch.on_start(pid);
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    ended.output += buffer;
    if (watch.on_output) watch.on_output(pid, ended.output);
  }
  const int status = pclose(pipe);
  ended.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace baton
