#include "tests/goodput/verdict_command.h"

#include <cstdio>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "tests/goodput/results/run_checks.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/results/slo_file.h"
#include "tests/goodput/results/verdict_text.h"
#include "tests/goodput/run_command.h"
#include "tests/goodput/slo_folder.h"

ABSL_DECLARE_FLAG(std::string, slo);

namespace baton {
namespace {

int PrintVerdict(const std::vector<std::string>& words) {
  absl::StatusOr<RunResult> run = ReadRunFile(words[0]);
  if (!run.ok()) {
    std::fprintf(stderr, "baton-goodput: %s\n", std::string(run.status().message()).c_str());
    return kExitFailed;
  }
  if (const std::string path = absl::GetFlag(FLAGS_slo); !path.empty()) {
    const absl::StatusOr<SloFile> slo = ReadSloFromFlag();
    if (!slo.ok()) RefuseToStart(slo.status().message());
    if (slo->IsRelative() && !run->unloaded.has_value()) {
      RefuseToStart(absl::StrCat(path,
                                 " has multiples of the unloaded latency, which was not "
                                 "measured in ",
                                 words[0]));
    }
    const absl::StatusOr<SloTargets> targets = slo->Resolve(run->unloaded);
    if (!targets.ok()) RefuseToStart(targets.status().message());
    JudgeBy(*targets, &*run);
  }
  std::fputs(VerdictText(*run, ComputeVerdict(*run)).c_str(), stdout);
  return ExitStatus(*run);
}

}  // namespace

Command VerdictCommand() {
  return {
      .name = "verdict",
      .usage =
          "baton-goodput verdict FILE [--slo=NAME]: judges a run file again, by its own targets or "
          "by others.",
      .flags = {"slo"},
      .min_words = 1,
      .max_words = 1,
      .run = PrintVerdict,
      .groups = {{"Targets", "slo"}}};
}

}  // namespace baton
