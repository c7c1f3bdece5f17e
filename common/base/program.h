#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

inline constexpr absl::string_view kVersion = "0.1.0";

// Parses absl flags for a program of ours: `--help` prints `usage` and the program's own flags
// (those defined in files of this repository), `--version` prints name and version; both exit 0. An
// unknown flag or a bad value is named on standard error and exits 2. Returns the positional
// arguments, without the program's name.
std::vector<std::string> StartProgram(int argc, char** argv, absl::string_view usage);

// Prints "NAME: message" to standard error and exits 2: a flag or file that can't be used.
[[noreturn]] void RefuseToStart(absl::string_view message);

// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and all it starts later; call it first.
// Then WaitForStop() returns when one of them arrives; a second one ends the process at once with
// status 130.
void BlockStopSignals();
void WaitForStop();

}  // namespace baton
