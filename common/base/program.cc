#include "common/base/program.h"

#include <cstdio>
#include <cstdlib>
#include <thread>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"

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

bool IsOwnFlagFile(absl::string_view file) {
  // Abseil's and other libraries' flags are not the user's business.
  return !absl::StrContains(file, "absl/") && !absl::StartsWith(file, "/usr");
}

}  // namespace

std::vector<std::string> StartProgram(int argc, char** argv, absl::string_view usage) {
  const absl::string_view path = argv[0];
  Name() = std::string(path.substr(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1));
  SetLogProgram(Name());
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.version_string = [] { return absl::StrCat(Name(), " ", kVersion, "\n"); };
  config.contains_helpshort_flags = IsOwnFlagFile;
  config.contains_help_flags = IsOwnFlagFile;
  config.contains_helppackage_flags = IsOwnFlagFile;
  absl::SetFlagsUsageConfig(config);
  for (int i = 1; i < argc;
       ++i) {  // abseil exits 1 after --help; a question answered is no failure
    const absl::string_view argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      argv[i] = const_cast<char*>("--help");
      std::atexit([] {
        std::fflush(stdout);
        _exit(0);
      });
      break;
    }
  }
  std::vector<std::string> positional;
  for (char* argument : absl::ParseCommandLine(argc, argv)) positional.emplace_back(argument);
  positional.erase(positional.begin());
  return positional;
}

void RefuseToStart(absl::string_view message) {
  std::fprintf(stderr, "%s: %.*s\n", Name().c_str(), static_cast<int>(message.size()),
               message.data());
  std::exit(2);
}

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void WaitForStop() {
  const sigset_t signals = StopSignals();
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  std::thread([signals] {
    int second = 0;
    sigwait(&signals, &second);
    _exit(130);
  }).detach();
}

}  // namespace baton
