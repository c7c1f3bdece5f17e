#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include <sys/types.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"

// Helpers for tests that run programs as users do.
namespace baton {

// The result of a command.
struct Ended {
  int exit_status = 0;  // Exit status; 128 + the signal's number if a signal ended the command.
  std::string output;   // Standard output and standard error together.
};

// Functions that are called while a command runs.
struct ShellWatch {
  std::function<void(pid_t)> on_start;  // Receives the command's process id.
  std::function<void(pid_t, const std::string&)>
      on_output;  // Called after each line, with all output so far.
};

// Runs the command with sh, and waits until it has ended. `watch` receives the process id of the
// shell. If the command begins with `exec`, the shell becomes the command's program, with the same
// id.
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
