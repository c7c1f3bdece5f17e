#pragma once

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Version of all programs, from project() of the top CMakeLists.txt.
extern const absl::string_view kVersion;

// Flags that --help shows under one heading. The fields are plain text because every program has
// many groups.
struct FlagGroup {
  const char* title;
  const char* flags;  // names with dashes, separated by blanks
};

// Help text of one command, for a program whose first argument is a command. `NAME COMMAND --help`
// prints only this part.
struct CommandHelp {
  const char* name;
  const char* usage;
  std::vector<FlagGroup> groups;
};

// Text that --help prints in addition to the description of each flag.
struct ProgramHelp {
  ProgramHelp(const char* usage_text, std::vector<FlagGroup> flag_groups = {},
              std::vector<CommandHelp> command_helps = {})  // NOLINT: implicit on purpose
      : usage(usage_text), groups(std::move(flag_groups)), commands(std::move(command_helps)) {}

  const char* usage;
  // Groups of flags in the order of --help. If the program has commands, these are only the flags
  // that all commands share.
  std::vector<FlagGroup> groups;
  std::vector<CommandHelp> commands;  // empty if the program has no commands
};

// Parses the command line into the absl flags of the program. It accepts `--max-tokens 5`,
// `--max_tokens=5`, `--json`, `--no-json` and `--json=false`; `--` ends the flags.
// - `--help` or `-h` prints `help` and the program's own flags (those defined in files of this
//   repository) by group. Flags without a group come last.
// - `--list-flags` prints one line per flag for other programs: its name, then `bool` or `value`.
// - `--version` prints name and version.
// After any of these outputs the process exits with 0. An unknown flag, and a missing or bad value,
// is reported on standard error with exit status 2. Returns the positional arguments, without the
// program's name. Call only from `main`, once.
std::vector<std::string> StartProgram(int argc, char** argv, const ProgramHelp& help);

// Returns the program's own flags that the command line named. Each flag is listed once, with
// underscores as absl names flags.
const std::vector<std::string>& GivenFlags();

// Prints `lines`, which include their line ends, to standard output and flushes it. Use it for text
// that scripts wait for or people look for, such as an address. Prints nothing with
// --log-format=json, because Kubernetes reads standard output and standard error together and must
// see only JSON. The caller must also log an event with the same facts.
void PrintAtStart(absl::string_view lines);

// Exits with 2 because a flag or file can't be used. First prints "NAME: message" to standard
// error, or logs it if the log format is JSON.
[[noreturn]] void RefuseToStart(absl::string_view message);

// Returns `value`, the value of flag `name` (with dashes), if it is from `lowest` to `highest`.
// Otherwise ends the process with a message that holds `name`, `value`, `lowest` and `highest`
// (RefuseToStart).
int CheckedInt(absl::string_view name, int value, int lowest, int highest);

// Returns the command that starts a router, for messages. This is "./baton up" if ./baton started
// this program (it sets $BATON_CALLED_AS). Otherwise it is "baton-router", because a machine with
// only the installed programs has no ./baton.
std::string RouterCommand();

// BlockStopSignals blocks SIGTERM, SIGINT and SIGHUP in the calling thread and in all threads it
// starts later, so call it first. WaitForStop returns when one of these signals arrives. A second
// signal then ends the process immediately with status 130.
void BlockStopSignals();
void WaitForStop();
// Waits for one of these signals, and returns its number, for a program that goes on after some of
// them. Do not call WaitForStop in such a program.
int NextStopSignal();

// While this object lives, a stop signal ends the process immediately with status 128 + signal. Use
// it during a slow start that needs no clean-up, between BlockStopSignals and WaitForStop.
class LeaveOnStop {
 public:
  LeaveOnStop();
  ~LeaveOnStop();
  LeaveOnStop(const LeaveOnStop&) = delete;
  LeaveOnStop& operator=(const LeaveOnStop&) = delete;

 private:
  int end_;  // eventfd that ends the thread
  std::thread thread_;
};

}  // namespace baton
