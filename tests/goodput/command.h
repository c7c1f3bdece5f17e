#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/program.h"

namespace baton {

// One subcommand of baton-goodput. Each subcommand has its own file, NAME_command.cc, which also
// defines the flags that only this subcommand accepts. main.cc lists all subcommands.
struct Command {
  const char* name;
  const char* usage;  // First lines of the subcommand's --help.
  // Flags that the subcommand accepts, in Abseil's spelling (underscores).
  std::vector<std::string> flags;
  // Min and max number of arguments after the name, flags not counted.
  size_t min_words, max_words;
  // Runs the subcommand with the arguments that follow its name; returns the exit status.
  int (*run)(const std::vector<std::string>& words);
  std::vector<FlagGroup> groups = {};  // The subcommand's flags in groups, as --help shows them.
};

// Exit statuses other than 0.
inline constexpr int kExitFailed = 1;  // The run failed, a token differed, or a file was bad.
inline constexpr int kExitUsage = 2;   // The command line can't be used.
// The results can't be trusted, because the client sent requests late.
inline constexpr int kExitInvalid = 3;
inline constexpr int kExitInterrupted = 130;  // Stopped by Ctrl-C. The results so far are written.

// Prints the message of a status that is not Ok to standard error. Returns kExitInterrupted if the
// status is Cancelled, or else kExitFailed.
int Fail(const absl::Status& status);

// Returns true if the command line set this flag (spelled with underscores).
bool FlagGiven(const std::string& flag);

}  // namespace baton
