#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/program.h"
#include "tests/goodput/command.h"
#include "tests/goodput/diff_command.h"
#include "tests/goodput/report_command.h"
#include "tests/goodput/run_command.h"
#include "tests/goodput/search_command.h"
#include "tests/goodput/slos_command.h"
#include "tests/goodput/verdict_command.h"

namespace baton {
namespace {

constexpr char kUsage[] =
    R"(baton-goodput: sends requests to a router, or to any server with OpenAI's API (--openai), at
a given rate, even while earlier ones have not ended (open loop), and measures how many answers
met their latency targets.

  baton-goodput run --rate=R --prompt-tokens=L --output-tokens=L [--slo=NAME] [--out=FILE]
                                 sends one load and judges it
  baton-goodput run --openai=http://HOST:PORT ...
                                 the same, by HTTP
  baton-goodput search --rate=R --slo=NAME --out=FILE [--compare=disaggregated,colocated,auto] ...
                                 begins at rate R and finds the highest rate at which enough
                                 requests meet the targets
  baton-goodput verdict FILE [--slo=NAME]
                                 judges a run file again, by its own targets or by others
  baton-goodput report FILE... --out=FILE.html [--svg=FOLDER]
                                 makes a page from runs and searches, and a JSON file of its figures
  baton-goodput diff FILE FILE [--fail-on-loss]
                                 compares two runs, or two searches
  baton-goodput slos             lists the latency targets that --slo knows by name
  baton-goodput COMMAND --help   prints the flags of one command

Exit status:
  0    all went well, even if requests failed or were late
  1    the load could not be run or a file could not be read; or, with --expect, a request failed
       or a token differed; or diff --fail-on-loss found a loss
  2    the command line can't be used
  3    the measurement is invalid, because the tool itself was late
  130  a search used up its --time-budget, or Ctrl-C came: the tool cancels open requests and
       writes the results so far; a second Ctrl-C ends it at once
verdict exits as the run would have done with the targets that it judges by.)";

const std::vector<Command>& Commands() {
  static const auto* commands =
      new std::vector<Command>{RunCommand(),    SearchCommand(), VerdictCommand(),
                               ReportCommand(), DiffCommand(),   SlosCommand()};
  return *commands;
}

ProgramHelp Help() {
  std::vector<CommandHelp> commands;
  for (const Command& command : Commands()) {
    commands.push_back({.name = command.name, .usage = command.usage, .groups = command.groups});
  }
  return {kUsage, {{"Log", "log-level log-format"}}, std::move(commands)};
}

// Returns the subcommand that the command line names. If name, flags and arguments do not fit
// together, says why and exits with status 2.
const Command& CommandOf(const std::vector<std::string>& words) {
  const std::string names = absl::StrJoin(
      Commands(), ", ",
      [](std::string* out, const Command& command) { absl::StrAppend(out, command.name); });
  if (words.empty()) RefuseToStart(absl::StrCat("a command is needed: ", names));
  const auto command =
      absl::c_find_if(Commands(), [&](const Command& one) { return one.name == words[0]; });
  if (command == Commands().end()) {
    RefuseToStart(absl::StrCat("unknown command '", words[0], "': the commands are ", names));
  }
  for (const std::string& flag : GivenFlags()) {
    // Every program has Abseil's logging flags, so every subcommand accepts them.
    if (absl::StartsWith(flag, "log_")) continue;
    if (absl::c_linear_search(command->flags, flag)) continue;
    RefuseToStart(absl::StrCat("--", absl::StrReplaceAll(flag, {{"_", "-"}}), " is not a flag of ",
                               words[0], "; ", words[0], " --help lists its flags"));
  }
  const size_t given = words.size() - 1;
  if (given > command->max_words) {
    RefuseToStart(absl::StrCat("'", words.back(), "' is one word too many for ", words[0]));
  }
  if (given < command->min_words) {
    RefuseToStart(absl::StrCat(words[0], " needs ", command->min_words,
                               command->min_words == 1 ? " file" : " files", ", and was given ",
                               given, "; ", words[0], " --help says which"));
  }
  return *command;
}

}  // namespace

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "baton-goodput: %s\n", std::string(status.message()).c_str());
  return absl::IsCancelled(status) ? kExitInterrupted : kExitFailed;
}

bool FlagGiven(const std::string& flag) {
  return std::binary_search(GivenFlags().begin(), GivenFlags().end(), flag);
}

}  // namespace baton

int main(int argc, char** argv) {
  const std::vector<std::string> words = baton::StartProgram(argc, argv, baton::Help());
  const baton::Command& command = baton::CommandOf(words);
  // Raises the priority before any thread starts, because threads inherit it. If the load saturates
  // the machine, this program must still send and read the clock in time. If the system refuses the
  // priority, requests may be sent late, and the lag is reported.
  setpriority(PRIO_PROCESS, 0, -10);
  return command.run({words.begin() + 1, words.end()});
}
