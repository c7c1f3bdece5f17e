#include "tests/goodput/diff_command.h"

#include <cstdio>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "tests/goodput/report/comparison.h"
#include "tests/goodput/results/run_file.h"

ABSL_DECLARE_FLAG(std::string, out);
ABSL_DECLARE_FLAG(double, attainment);
ABSL_FLAG(bool, fail_on_loss, false,
          "diff: exits with 1 if a mode's capacity (for single loads: its goodput) fell by more "
          "than its 95 % interval, if the second file lacks a mode of the first, or if a file is "
          "partial or invalid");

namespace baton {
namespace {

int PrintDiff(const std::vector<std::string>& paths) {
  const double goal = absl::GetFlag(FLAGS_attainment);
  if (!(goal > 0 && goal < 1))
    RefuseToStart(absl::StrCat("--attainment=", goal, " is not between 0 and 1"));
  const std::string out = absl::GetFlag(FLAGS_out);
  if (!out.empty()) {
    if (absl::Status status = CheckIsNoInput(out, paths); !status.ok())
      RefuseToStart(status.message());
  }
  std::vector<std::vector<Cell>> sides;
  for (const std::string& path : paths) {
    absl::StatusOr<InputFile> file = ReadInputFile(path);
    if (!file.ok()) return Fail(file.status());
    if (FlagGiven("attainment")) {
      if (absl::Status status = CheckGoal(*file, goal); !status.ok())
        RefuseToStart(status.message());
    }
    sides.push_back(CellsOf({*std::move(file)}, goal));
  }
  const Comparison comparison = Compare(sides[0], sides[1]);
  std::fputs(ComparisonText(comparison).c_str(), stdout);
  if (comparison.modes.empty())
    return Fail(absl::InvalidArgumentError("the two files have nothing in common"));
  if (!out.empty()) {
    const absl::Status status =
        WriteWhole(out, absl::StrCat(ComparisonJson(comparison).dump(1), "\n"));
    if (!status.ok()) return Fail(status);
  }
  if (!absl::GetFlag(FLAGS_fail_on_loss)) return 0;
  if (!comparison.doubts.empty()) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("can't tell whether there is a loss: ", comparison.doubts[0])));
  }
  return comparison.FellBeyondNoise() ? kExitFailed : 0;
}

}  // namespace

Command DiffCommand() {
  return {
      .name = "diff",
      .usage = "baton-goodput diff FILE FILE [--fail-on-loss]: compares two runs, or two searches.",
      .flags = {"out", "attainment", "fail_on_loss"},
      .min_words = 2,
      .max_words = 2,
      .run = PrintDiff,
      .groups = {{"Comparison", "attainment fail-on-loss"}, {"What is written", "out"}}};
}

}  // namespace baton
