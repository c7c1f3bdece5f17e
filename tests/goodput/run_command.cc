#include "tests/goodput/run_command.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/load.h"
#include "tests/goodput/load/progress_line.h"
#include "tests/goodput/load/server_connection.h"
#include "tests/goodput/load/unloaded.h"
#include "tests/goodput/load_flags.h"
#include "tests/goodput/results/expect_file.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/results/slo_file.h"
#include "tests/goodput/results/verdict_text.h"
#include "tests/goodput/slo_folder.h"
#include "tests/goodput/stop_on_signal.h"

ABSL_FLAG(std::string, slo, "",
          "latency targets: a file, or a name that `slos` lists, such as chat; without targets "
          "every completed request is good");
ABSL_FLAG(std::string, out, "",
          "file to write: run and search write their results, report its page, diff its figures");
ABSL_FLAG(std::string, expect, "",
          "run: file of token ids, written by --expect-write, to compare every answer with; the "
          "load then has no tail");
ABSL_FLAG(std::string, expect_write, "",
          "run: file to write the token ids of every answer to; the load then has no tail");

namespace baton {
namespace {

// The settings of a run, from the command line and from the files that it names.
struct Plan {
  LoadSpec spec;
  std::optional<SloFile> slo;
  std::optional<ExpectFile> expected;
};

absl::StatusOr<Plan> MakePlan() {
  ASSIGN_OR_RETURN(LoadSpec spec, LoadSpecFromFlags());
  Plan plan{.spec = std::move(spec)};
  if (FlagGiven("openai_model") && !IsOpenAiEndpoint(plan.spec.endpoint))
    return absl::InvalidArgumentError("--openai-model has no meaning without --openai");
  if (plan.spec.openai_chat && !IsOpenAiEndpoint(plan.spec.endpoint))
    return absl::InvalidArgumentError("--openai-chat has no meaning without --openai");
  if (const std::string path = absl::GetFlag(FLAGS_slo); !path.empty()) {
    ASSIGN_OR_RETURN(SloFile slo, ReadSloFromFlag());
    plan.slo = std::move(slo);
    plan.spec.given["slo"] = path;
  }
  const std::string expect = absl::GetFlag(FLAGS_expect);
  const std::string expect_write = absl::GetFlag(FLAGS_expect_write);
  if (!expect.empty() && !expect_write.empty())
    return absl::InvalidArgumentError(
        "--expect compares and --expect-write records; give one of them");
  if (!expect.empty() || !expect_write.empty()) {
    if (FlagGiven("tail") && plan.spec.tail) {
      return absl::InvalidArgumentError(
          "--tail: how many requests a tail has depends on the server, so --expect can't compare "
          "it; leave --tail out");
    }
    plan.spec.tail = false;
    plan.spec.keep_token_ids = true;
  }
  if (!expect.empty()) {
    ASSIGN_OR_RETURN(ExpectFile expected, ExpectFile::Read(expect));
    plan.expected = std::move(expected);
    plan.spec.given["expect"] = expect;
  }
  RETURN_IF_ERROR(CheckLoad(plan.spec));
  for (const std::string& path : {absl::GetFlag(FLAGS_out), expect_write}) {
    if (path.empty()) continue;
    RETURN_IF_ERROR(CheckWritable(path));
  }
  return plan;
}

// If --expect is given, compares the tokens of the answers with the expected tokens. If
// --expect-write is given, writes the tokens of the answers to a file. Later runs can take this
// file as --expect. Fills run->expect.
absl::Status Expect(const std::optional<ExpectFile>& expected, RunResult* run) {
  if (expected.has_value()) {
    run->expect = expected->Compare(run->records, run->fingerprints);
    run->expect->file = absl::GetFlag(FLAGS_expect);
    return absl::OkStatus();
  }
  const std::string path = absl::GetFlag(FLAGS_expect_write);
  if (path.empty()) return absl::OkStatus();
  const ExpectFile file = ExpectFile::Of(run->records, run->fingerprints);
  run->expect = ExpectResult{.file = path,
                             .written = true,
                             .failed = static_cast<uint32_t>(run->records.size() - file.size())};
  return file.Write(path);
}

int RunOnce(const std::vector<std::string>&) {
  absl::StatusOr<Plan> plan = MakePlan();
  if (!plan.ok()) RefuseToStart(plan.status().message());
  StopFlag* const stop = StopOnSignal();

  std::optional<UnloadedLatency> unloaded;
  if (plan->slo.has_value()) {
    if (plan->slo->IsRelative()) {
      const absl::StatusOr<UnloadedLatency> measured = MeasureUnloaded(plan->spec, stop);
      if (!measured.ok()) return Fail(measured.status());
      unloaded = *measured;
    }
    const absl::StatusOr<SloTargets> targets = plan->slo->Resolve(unloaded);
    if (!targets.ok()) return Fail(targets.status());
    SetTargets(*targets, &plan->spec);
  }
  absl::StatusOr<RunResult> run;
  {
    ProgressLine line(stderr, "");
    run = RunLoad(plan->spec, stop, [&](const RunProgress& progress) { line.Show(progress); });
  }
  if (!run.ok()) return Fail(run.status());
  run->unloaded = unloaded;
  if (absl::Status status = Expect(plan->expected, &*run); !status.ok()) return Fail(status);
  if (const std::string out = absl::GetFlag(FLAGS_out); !out.empty()) {
    if (absl::Status status = WriteRunFile(out, *run); !status.ok()) return Fail(status);
  }
  std::fputs(VerdictText(*run, ComputeVerdict(*run)).c_str(), stdout);
  return ExitStatus(*run);
}

}  // namespace

int ExitStatus(const RunResult& run) {
  if (run.partial) return kExitInterrupted;
  const auto& expect = run.expect;
  if (expect.has_value() && expect->different + expect->failed + expect->unknown > 0)
    return kExitFailed;
  return run.invalid.empty() ? 0 : kExitInvalid;
}

Command RunCommand() {
  std::vector<std::string> flags = LoadFlagNames();
  flags.insert(flags.end(), {"slo", "out", "expect", "expect_write"});
  std::vector<FlagGroup> groups = LoadFlagGroups();
  groups.push_back({"Targets and results", "slo out expect expect-write"});
  return {.name = "run",
          .usage =
              "baton-goodput run --rate=R --prompt-tokens=L --output-tokens=L [--slo=NAME] "
              "[--out=FILE]: sends one\nload and judges it.",
          .flags = flags,
          .min_words = 0,
          .max_words = 0,
          .run = RunOnce,
          .groups = groups};
}

}  // namespace baton
