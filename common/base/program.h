#pragma once

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// The version of all programs, as project() of the top CMakeLists.txt has it.
extern const absl::string_view kVersion;

// Flags that belong together, under one heading of --help. Plain text, as every program has many.
struct FlagGroup {
  const char* title;
  const char* flags;  // their names with dashes, between them blanks
};

// What --help prints of a program whose first word is a command: `NAME COMMAND --help` prints only
// that command's part.
struct CommandHelp {
  const char* name;
  const char* usage;
  std::vector<FlagGroup> groups;
};

// What --help prints beside the text of each flag, which stands where the flag is defined.
struct ProgramHelp {
  ProgramHelp(const char* usage_text, std::vector<FlagGroup> flag_groups = {},
              std::vector<CommandHelp> command_helps = {})  // NOLINT: a text is enough
      : usage(usage_text), groups(std::move(flag_groups)), commands(std::move(command_helps)) {}

  const char* usage;
  std::vector<FlagGroup> groups;      // with commands: the flags that every command has
  std::vector<CommandHelp> commands;  // empty: the program has none
};

// Reads the command line of a program of ours into its absl flags. `--max-tokens 5`,
// `--max_tokens=5`,
// `--json`, `--no-json` and `--json=false` are all understood; `--` ends the flags. `--help` or
// `-h` prints `help` and the program's own flags (those defined in files of this repository) by
// their groups; flags that no group names come last. `--list-flags` prints a line per flag for
// other programs: its name and whether it is a `bool` or takes a `value`. `--version` prints name
// and version. All three exit 0. An unknown flag, a missing or a bad value is named on standard
// error and exits 2. Returns the positional arguments, without the program's name. `main` only,
// once.
std::vector<std::string> StartProgram(int argc, char** argv, const ProgramHelp& help);

// The program's own flags that the command line named, each once, as absl names them (underscores).
const std::vector<std::string>& GivenFlags();

// Prints `lines`, each with its end, to standard output at once: what scripts wait for and people
// look for, such as an address. With --log-format=json it prints nothing, and the log's event has
// to say the same: to whom reads both streams as one (Kubernetes does) every line is JSON then.
void PrintAtStart(absl::string_view lines);

// Prints "NAME: message" to standard error, or logs it as JSON where that is the format, and exits
// 2: a flag or file that can't be used.
[[noreturn]] void RefuseToStart(absl::string_view message);

// Returns `value` of the flag `name`, written with dashes, where it is from `lowest` to `highest`.
// Otherwise refuses to start, with all four in the message.
int CheckedInt(absl::string_view name, int value, int lowest, int highest);

// Returns the command that starts a router, for messages: "./baton up" where ./baton has started
// this program (it sets $BATON_CALLED_AS), else "baton-router", as a machine that has the programs
// alone has no ./baton.
std::string RouterCommand();

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
