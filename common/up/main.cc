#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/program.h"
#include "common/base/usable_memory.h"
#include "common/up/child_process.h"
#include "common/up/down_command.h"
#include "common/up/help_texts.h"
#include "common/up/processes.h"
#include "common/up/state_folder.h"
#include "common/up/status_command.h"
#include "common/up/up_command.h"
#include "common/up/up_options.h"
#include "common/up/wording.h"

namespace baton {
namespace {

[[noreturn]] void RefuseCommandLine(absl::string_view why) {
  SayFailure(absl::StrCat(why, " (", CalledAs(), " help)"));
  std::exit(2);
}

int PrintHelp(const std::string& command) {
  std::string text(command == "status" ? kStatusHelp : command == "down" ? kDownHelp : kUpHelp);
  // The help texts name the commands of ./baton. For installed programs, these names are replaced.
  if (CalledAs() == "baton-up") {
    text = absl::StrReplaceAll(text, {{"./baton generate", "baton-client generate"},
                                      {"./baton help prefill", "baton-prefill --help"},
                                      {"./baton help decode", "baton-decode --help"},
                                      {"./baton help router", "baton-router --help"},
                                      {"./baton", "baton-up"}});
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

// Returns the demo model's folder if the programs are installed and have one, or "".
std::string InstalledDemo(const std::string& programs) {
  namespace fs = std::filesystem;
  const fs::path demo = fs::path(programs).parent_path() / "share/baton/models/demo";
  std::error_code error;
  return fs::exists(demo / "config.json", error) ? demo.string() : "";
}

int ParseAndRunUp(std::vector<std::string> words, const std::string& programs) {
  std::map<Role, absl::StatusOr<FlagTable>> tables;
  const auto flags_of = [&](Role role) -> absl::StatusOr<FlagTable> {
    auto table = tables.find(role);
    if (table == tables.end()) {
      absl::StatusOr<std::string> lines =
          OutputOf(absl::StrCat(programs, "/", ProgramOf(role)), {"--list-flags"});
      table = lines.ok() ? tables.emplace(role, ParseFlagTable(*lines)).first
                         : tables.emplace(role, lines.status()).first;
    }
    return table->second;
  };
  const std::string demo = InstalledDemo(programs);
  if (!demo.empty()) words.insert(words.begin(), absl::StrCat("--demo-model=", demo));
  absl::StatusOr<UpOptions> options = ParseUpOptions(words, flags_of);
  if (!options.ok()) {
    if (absl::IsInvalidArgument(options.status())) RefuseCommandLine(options.status().message());
    SayFailure(options.status().message());
    return 1;
  }
  if (options->check) return 0;
  if (!PassedValue(*options, Role::kRouter, "api-key-file").empty() && !HasApiKey()) {
    RefuseCommandLine(
        "--api-key-file without $BATON_API_KEY: up would have no key for its first prompt; set "
        "$BATON_API_KEY to one of the file's keys");
  }
  const UsableMemory memory = ReadUsableMemory();
  if (memory.bytes != UINT64_MAX) options->usable_memory_bytes = memory.bytes;
  return RunUp(*options, programs, DefaultStateFolder());
}

int Main(const std::vector<std::string>& words) {
  // Without a command, as in `baton-up --model DIR`, the command is `up`.
  const bool named = !words.empty() && words[0].substr(0, 1) != "-";
  const std::string command = named ? words[0] : "up";
  const std::vector<std::string> rest(words.begin() + (named ? 1 : 0), words.end());
  if (command == "help" || absl::c_linear_search(rest, "--help") ||
      absl::c_linear_search(rest, "-h")) {
    return PrintHelp(command == "help" && !rest.empty() ? rest[0] : command);
  }
  if (absl::c_linear_search(rest, "--version")) {
    std::printf("baton-up %s\n", std::string(kVersion).c_str());
    return 0;
  }
  const std::string programs = OwnFolder();
  if (command == "up") return ParseAndRunUp(rest, programs);
  if (command != "status" && command != "down") {
    RefuseCommandLine(
        absl::StrCat("unknown command '", command, "': the commands are up, status and down"));
  }
  if (!rest.empty())
    RefuseCommandLine(absl::StrCat(command, " takes no flags, not '", rest[0], "'"));
  return command == "status" ? RunStatus(programs, DefaultStateFolder())
                             : RunDown(DefaultStateFolder());
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main({argv + 1, argv + argc}); }
