#include "tests/goodput/verdict_command.h"

#include <cstdio>

#include "tests/goodput/run_file.h"
#include "tests/goodput/verdict_text.h"

namespace baton {
namespace {

int PrintVerdict(const std::vector<std::string>& words) {
  const absl::StatusOr<RunResult> run = ReadRunFile(words[0]);
  if (!run.ok()) {
    std::fprintf(stderr, "baton-goodput: %s\n", std::string(run.status().message()).c_str());
    return kExitFailed;
  }
  std::fputs(VerdictText(*run, ComputeVerdict(*run)).c_str(), stdout);
  return 0;
}

}  // namespace

Command VerdictCommand() {
  return {.name = "verdict", .flags = {}, .least_words = 1, .most_words = 1, .run = PrintVerdict};
}

}  // namespace baton
