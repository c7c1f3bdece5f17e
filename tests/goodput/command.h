#pragma once

#include <string>
#include <vector>

#include "common/base/program.h"

namespace baton {

// One subcommand. Each stands in a file of its own, NAME_command.cc, with the flags that only it
// takes; main.cc lists them.
struct Command {
  const char* name;
  const char* usage;               // the first lines of its --help
  std::vector<std::string> flags;  // those it understands, as absl names them (underscores)
  size_t least_words, most_words;  // arguments after the name that are no flags
  int (*run)(const std::vector<std::string>& words);  // the words; returns the exit status
  std::vector<FlagGroup> groups = {};                 // its flags in --help
};

// Exit statuses beside 0.
inline constexpr int kExitFailed = 1;   // the run failed, a token differed, a file was bad
inline constexpr int kExitUsage = 2;    // the command line can't be used
inline constexpr int kExitInvalid = 3;  // measured, but not to be believed: the client was late
inline constexpr int kExitInterrupted = 130;  // Ctrl-C; what was measured until then is written

// True when the command line gave the flag (underscores).
bool FlagGiven(const std::string& flag);

}  // namespace baton
