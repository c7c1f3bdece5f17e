#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace baton {

struct ChildOptions {
  std::string program;  // its path
  std::vector<std::string> arguments;
  // Output and errors are appended to this file; empty: they go where this process's go.
  std::string log;
  // In a process group of its own, so that the terminal's Ctrl-C reaches only this process, which
  // decides the order in which things end.
  bool own_group = true;
};

// Starts a program with nothing to read, no signal blocked, and this process's environment. It
// receives SIGTERM when this process dies, however that happens. The caller has one thread and
// waits for the child. NotFound and other errors name the program or file that can't be used; then
// there is no child.
absl::StatusOr<pid_t> StartChild(const ChildOptions& options);

// Runs a program to its end and returns its standard output. Unavailable if it can't be started or
// fails.
absl::StatusOr<std::string> OutputOf(const std::string& program,
                                     const std::vector<std::string>& arguments);

// The folder of the program that this process runs, links resolved.
std::string OwnFolder();

}  // namespace baton
