#include "common/base/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/flag_hint.h"
#include "common/base/log.h"

ABSL_FLAG(baton::Severity, log_level, baton::Severity::kInfo,
          "lowest level of the log lines that are written: debug, info, warn or error");
ABSL_FLAG(baton::LogFormat, log_format, baton::LogFormat::kText,
          "format of the log on standard error: text, or json (one object per line; servers then "
          "print nothing on standard output, and their addresses are only in the log)");

namespace baton {
namespace {

std::string& Name() {
  static auto* name = new std::string("baton");
  return *name;
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  return signals;
}

std::vector<std::string>& Given() {
  static auto* given = new std::vector<std::string>;
  return *given;
}

// Returns true if the flag is one of ours. Flags of libraries are not the user's business; Abseil
// is the only linked library that has flags. This function does not compare __FILE__ with our own
// source root, because a compiler cache may write that path differently in each object.
bool IsOwn(const absl::CommandLineFlag& flag) {
  return !flag.IsRetired() && !absl::StrContains(flag.Filename(), "absl/flags/");
}

absl::CommandLineFlag* FindOwnFlag(absl::string_view name) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && IsOwn(*flag) ? flag : nullptr;
}

// Returns the --help text of one flag: its name, then its description, wrapped and indented. A
// description may start with the names of its commands ("generate, tokenize: ..."). In the help of
// one command, these names are left out.
std::string HelpOf(const absl::CommandLineFlag& flag, absl::string_view command) {
  constexpr size_t kColumns = 92;
  constexpr absl::string_view kIndent = "\n      ";
  const std::string default_value = flag.DefaultValue();
  const bool is_bool = flag.IsOfType<bool>();
  const std::string whole = flag.Help();
  absl::string_view own = whole;
  const std::vector<absl::string_view> commands =
      absl::StrSplit(own.substr(0, own.find(": ")), ", ");
  if (std::find(commands.begin(), commands.end(), command) != commands.end()) {
    own.remove_prefix(own.find(": ") + 2);
  }
  std::string text(own);
  if (!is_bool && !default_value.empty()) absl::StrAppend(&text, " (default: ", default_value, ")");
  const std::string name = absl::StrReplaceAll(flag.Name(), {{"_", "-"}});
  std::string help =
      absl::StrCat("  --", is_bool && default_value == "true" ? "[no-]" : "", name, kIndent);
  size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > 0 && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&help, kIndent);
      column = 0;
    }
    absl::StrAppend(&help, column > 0 ? " " : "", word);
    column += word.size() + 1;
  }
  return absl::StrCat(help, "\n");
}

using OwnFlags = std::map<std::string, const absl::CommandLineFlag*>;

// Returns the program's own flags, by name with dashes.
OwnFlags FindOwnFlags() {
  OwnFlags own;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOwn(*flag)) own[absl::StrReplaceAll(name, {{"_", "-"}})] = flag;
  }
  return own;
}

// Returns the --help text of the groups. Removes each printed flag from `rest`. Skips flags that
// the program does not have, so that programs can share a list of groups.
std::string HelpOfGroups(const std::vector<FlagGroup>& groups, const OwnFlags& own, OwnFlags* rest,
                         absl::string_view command = "") {
  std::string help;
  for (const FlagGroup& group : groups) {
    std::string flags;
    for (const absl::string_view word : absl::StrSplit(group.flags, ' ', absl::SkipEmpty())) {
      const std::string name(word);
      const auto flag = own.find(name);
      if (flag == own.end()) continue;
      absl::StrAppend(&flags, HelpOf(*flag->second, command));
      rest->erase(name);
    }
    if (!flags.empty()) absl::StrAppend(&help, "\n", group.title, ":\n", flags);
  }
  return help;
}

// Prints --help and exits. `word` is the first positional argument before --help; it may name a
// command.
[[noreturn]] void PrintHelp(const ProgramHelp& program, absl::string_view word) {
  const OwnFlags own = FindOwnFlags();
  OwnFlags rest = own;
  std::string help;
  const auto command =
      std::find_if(program.commands.begin(), program.commands.end(),
                   [&](const CommandHelp& one) { return one.name == word && !word.empty(); });
  if (command != program.commands.end()) {
    help = absl::StrCat(absl::StripTrailingAsciiWhitespace(command->usage), "\n",
                        HelpOfGroups(command->groups, own, &rest, word),
                        HelpOfGroups(program.groups, own, &rest));
  } else {
    help = absl::StrCat(absl::StripTrailingAsciiWhitespace(program.usage), "\n");
    for (const CommandHelp& one : program.commands) {
      absl::StrAppend(&help, HelpOfGroups(one.groups, rest, &rest));
    }
    absl::StrAppend(&help, HelpOfGroups(program.groups, own, &rest));
    std::string names;
    for (const auto& [name, flag] : rest) absl::StrAppend(&names, name, " ");
    const bool alone = rest.size() == own.size();
    absl::StrAppend(&help,
                    HelpOfGroups({{alone ? "Flags" : "Other flags", names.c_str()}}, own, &rest));
  }
  absl::StrAppend(
      &help,
      "\nFlags of every program:\n  --help\n      prints this text\n  --version\n      prints "
      "the version\n");
  std::fputs(help.c_str(), stdout);
  std::exit(0);
}

[[noreturn]] void PrintFlagList() {
  for (const auto& [name, flag] : FindOwnFlags()) {
    std::printf("%s %s\n", name.c_str(), flag->IsOfType<bool>() ? "bool" : "value");
  }
  std::exit(0);
}

// Flags that had another name in an earlier version: the old name, then the new one.
constexpr std::pair<absl::string_view, absl::string_view> kRenamedFlags[] = {
    {"least_requests", "min_requests"},
    {"highest_rate", "max_rate"},
    {"lowest_rate", "min_rate"},
    {"longest_probe", "max_probe"},
};

// Returns advice such as "; did you mean --NAME?" for the unknown flag `name`, or "" if no flag is
// close.
std::string DidYouMean(absl::string_view name) {
  for (const auto& [old_name, new_name] : kRenamedFlags) {
    if (name != old_name || absl::FindCommandLineFlag(new_name) == nullptr) continue;
    return absl::StrCat("; it is called --", absl::StrReplaceAll(new_name, {{"_", "-"}}), " now");
  }
  std::vector<std::string> names = {"help", "version"};
  for (const auto& [known, flag] : absl::GetAllFlags()) {
    if (IsOwn(*flag)) names.emplace_back(known);
  }
  const std::string closest = ClosestName(name, names);
  if (closest.empty()) return "";
  return absl::StrCat("; did you mean --", absl::StrReplaceAll(closest, {{"_", "-"}}), "?");
}

// Returns true if the command line asks for JSON logs. Runs before flags are parsed, because an
// error about one flag must be printed in the format that a later flag may choose.
bool AsksForJson(int argc, char** argv) {
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    absl::string_view text = argv[i];
    if (!absl::ConsumePrefix(&text, "-")) continue;
    absl::ConsumePrefix(&text, "-");
    const std::string flag = absl::StrReplaceAll(text, {{"-", "_"}});
    if (flag == "log_format=json") return true;
    if (flag == "log_format" && i + 1 < argc) return absl::string_view(argv[i + 1]) == "json";
  }
  return false;
}

}  // namespace

std::vector<std::string> StartProgram(int argc, char** argv, const ProgramHelp& help) {
  const absl::string_view path = argv[0];
  Name() = std::string(path.substr(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1));
  SetLogProgram(Name());
  NeverWaitForLogReader();
  // Debian builds Abseil with its search for deadlocks, which makes each of gRPC's locks slower.
  // Tests keep it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (AsksForJson(argc, argv)) absl::SetFlag(&FLAGS_log_format, LogFormat::kJson);
  std::vector<std::string> positional;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--") {
      positional.insert(positional.end(), argv + i + 1, argv + argc);
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      positional.emplace_back(argument);
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      PrintHelp(help, positional.empty() ? "" : positional[0]);
    }
    if (argument == "--list-flags") PrintFlagList();
    if (argument == "--version") {
      std::printf("%s %s\n", Name().c_str(), std::string(kVersion).c_str());
      std::exit(0);
    }
    absl::string_view text = argument;
    absl::ConsumePrefix(&text, "-");
    absl::ConsumePrefix(&text, "-");
    const size_t equals = text.find('=');
    const std::string name = absl::StrReplaceAll(text.substr(0, equals), {{"-", "_"}});
    absl::CommandLineFlag* flag = FindOwnFlag(name);
    std::string value;
    if (flag == nullptr) {  // the argument may be --no-NAME or --noNAME
      absl::string_view positive = name;
      if (absl::ConsumePrefix(&positive, "no")) {
        absl::ConsumePrefix(&positive, "_");
        flag = FindOwnFlag(positive);
      }
      if (flag == nullptr || !flag->IsOfType<bool>() || equals != text.npos) {
        RefuseToStart(absl::StrCat("unknown flag ", argument.substr(0, argument.find('=')),
                                   DidYouMean(name), "; --help lists all flags"));
      }
      value = "false";
    } else if (equals != text.npos) {
      value = std::string(text.substr(equals + 1));
    } else if (flag->IsOfType<bool>()) {
      value = "true";
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      RefuseToStart(absl::StrCat("flag ", argument, " needs a value"));
    }
    std::string why;
    if (!flag->ParseFrom(value, &why)) {
      const absl::string_view typed = argument.substr(0, argument.find('='));
      const std::string hint = ValueHint(*flag, typed, value, why);
      RefuseToStart(absl::StrCat("'", value, "' is not a valid value of ", typed, ": ",
                                 flag->Help(), hint.empty() ? "" : "; ", hint));
    }
    Given().emplace_back(flag->Name());
  }
  SetLogLevel(absl::GetFlag(FLAGS_log_level));
  SetLogFormat(absl::GetFlag(FLAGS_log_format));
  std::sort(Given().begin(), Given().end());
  Given().erase(std::unique(Given().begin(), Given().end()), Given().end());
  return positional;
}

const std::vector<std::string>& GivenFlags() { return Given(); }

void PrintAtStart(absl::string_view lines) {
  if (absl::GetFlag(FLAGS_log_format) == LogFormat::kJson) return;
  std::fwrite(lines.data(), 1, lines.size(), stdout);
  std::fflush(stdout);
}

void RefuseToStart(absl::string_view message) {
  if (absl::GetFlag(FLAGS_log_format) == LogFormat::kJson) {
    SetLogFormat(LogFormat::kJson);
    Log(Severity::kError, "refused_to_start", {{"because", message}});
    std::exit(2);
  }
  std::fprintf(stderr, "%s: %.*s\n", Name().c_str(), static_cast<int>(message.size()),
               message.data());
  std::exit(2);
}

int CheckedInt(absl::string_view name, int value, int lowest, int highest) {
  if (value < lowest || value > highest) {
    RefuseToStart(absl::StrCat("--", name, " is ", value, "; it takes ", lowest, " to ", highest));
  }
  return value;
}

std::string RouterCommand() {
  const char* door = std::getenv("BATON_CALLED_AS");
  return door == nullptr || *door == '\0' ? "baton-router" : absl::StrCat(door, " up");
}

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int NextStopSignal() {
  const sigset_t signals = StopSignals();
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  return signal_number;
}

void WaitForStop() {
  NextStopSignal();
  std::thread([] {
    NextStopSignal();
    _exit(130);
  }).detach();
}

LeaveOnStop::LeaveOnStop() : end_(eventfd(0, EFD_CLOEXEC)) {
  const sigset_t signals = StopSignals();
  const int stop = signalfd(-1, &signals, SFD_CLOEXEC);
  BATON_CHECK(end_ >= 0 && stop >= 0) << errno;
  thread_ = std::thread([end = end_, stop] {
    pollfd either[2] = {{.fd = end, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    while (poll(either, 2, -1) < 0) BATON_CHECK(errno == EINTR) << errno;
    signalfd_siginfo came;
    if (either[0].revents == 0 && read(stop, &came, sizeof came) == sizeof came) {
      Log(Severity::kInfo, "stopped_while_starting",
          {{"signal", static_cast<int>(came.ssi_signo)}});
      _exit(128 + static_cast<int>(came.ssi_signo));
    }
    close(stop);
  });
}

LeaveOnStop::~LeaveOnStop() {
  eventfd_write(end_, 1);
  thread_.join();
  close(end_);
}

}  // namespace baton
