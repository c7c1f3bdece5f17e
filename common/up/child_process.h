#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace baton {

struct ChildOptions {
  std::string program;  // path of the program
  std::vector<std::string> arguments;
  // File to which standard output and standard error are appended. If empty, the child writes to
  // the standard output and standard error of this process.
  std::string log;
  // True if the child gets its own process group. Ctrl-C in the terminal then reaches only this
  // process, which stops the others in the right order.
  bool own_group = true;
};

// Starts a program with empty standard input, no blocked signals, and this process's environment.
// The child receives SIGTERM when this process dies for any reason. The caller must have only one
// thread, and must wait for the child. An error (NotFound or another) names the program or file
// that can't be used; no child is left then.
absl::StatusOr<pid_t> StartChild(const ChildOptions& options);

// Runs a program to its end and returns its standard output. Returns Unavailable if the program
// can't be started or fails.
absl::StatusOr<std::string> OutputOf(const std::string& program,
                                     const std::vector<std::string>& arguments);

// Returns the folder of this process's program, with symbolic links resolved.
std::string OwnFolder();

}  // namespace baton
