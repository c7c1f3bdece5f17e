#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

inline constexpr absl::string_view kVersion = "0.1.0";

// Reads the command line of a program of ours into its absl flags. `--max-tokens 5`,
// `--max_tokens=5`,
// `--json`, `--no-json` and `--json=false` are all understood; `--` ends the flags. `--help` or
// `-h` prints `usage` and the program's own flags (those defined in files of this repository),
// `--version` prints name and version; both exit 0. An unknown flag, a missing or a bad value is
// named on standard error and exits 2. Returns the positional arguments, without the program's
// name. `main` only, once.
std::vector<std::string> StartProgram(int argc, char** argv, absl::string_view usage);

// The program's own flags that the command line named, each once, as absl names them (underscores).
const std::vector<std::string>& GivenFlags();

// Prints `lines`, each with its end, to standard output at once: what scripts wait for and people
// look for, such as an address. With --log-format=json it prints nothing, and the log's event has
// to say the same: to whom reads both streams as one (Kubernetes does) every line is JSON then.
void PrintAtStart(absl::string_view lines);

// Prints "NAME: message" to standard error, or logs it as JSON where that is the format, and exits
// 2: a flag or file that can't be used.
[[noreturn]] void RefuseToStart(absl::string_view message);

// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and all it starts later; call it first.
// Then WaitForStop() returns when one of them arrives; a second one ends the process at once with
// status 130.
void BlockStopSignals();
void WaitForStop();

// Lives between those two. Meanwhile a stop signal ends the process at once, with status
// 128 + signal: for a start that takes long and leaves nothing behind.
class LeaveOnStop {
 public:
  LeaveOnStop();
  ~LeaveOnStop();
  LeaveOnStop(const LeaveOnStop&) = delete;
  LeaveOnStop& operator=(const LeaveOnStop&) = delete;

 private:
  int end_;  // an eventfd
  std::thread thread_;
};

}  // namespace baton
