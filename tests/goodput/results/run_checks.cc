#include "tests/goodput/results/run_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/goodput/results/verdict.h"

namespace baton {
namespace {

constexpr double kLagShareOfTtft = 0.05;
constexpr double kLagWithoutTarget_s = 2e-3;
constexpr double kReadLate_s = 5e-3;

void CheckLag(RunResult* run) {
  const ClientLag lag = LagOf(run->records);
  const double limit_s = run->targets.ttft_s.has_value() ? kLagShareOfTtft * *run->targets.ttft_s
                                                         : kLagWithoutTarget_s;
  if (lag.p99_s <= limit_s) return;
  run->invalid.push_back(absl::StrFormat(
      "the tool itself was late: P99 %.2f ms, and %.2f ms (%s) is the most; %u of %u requests left "
      "more than 1 ms late, the worst %.2f ms",
      lag.p99_s * 1e3, limit_s * 1e3,
      run->targets.ttft_s.has_value() ? "5 % of the TTFT target" : "without a TTFT target",
      lag.late, lag.sent, lag.worst_s * 1e3));
}

// Checks the part of TTFT that passes outside the router: in the network, and in the tool's own
// reader threads. If these threads run late, the server seems slow.
void CheckReading(RunResult* run) {
  std::vector<double> late_s;
  for (const RequestRecord& record : run->records) {
    if (record.outcome != Outcome::kCompleted || !record.has_phases || record.phases.ttft_s <= 0)
      continue;
    late_s.push_back(record.token_s.front() - record.sent_s - record.phases.ttft_s);
  }
  const double p99_s = Percentile(std::move(late_s), 0.99);
  const double limit_s = std::max(kReadLate_s, kLagShareOfTtft * run->targets.ttft_s.value_or(0));
  if (p99_s <= limit_s) return;
  run->remarks.push_back(
      absl::StrFormat("up to %.1f ms of a TTFT (P99) passed outside the router: on the way there "
                      "or back, or because "
                      "this tool read late, and then TPOT is off as well",
                      p99_s * 1e3));
}

void CheckWarmup(RunResult* run) {
  double sum_s = 0;
  uint32_t count = 0;
  for (const RequestRecord& record : run->records) {
    if (!record.measured || record.outcome != Outcome::kCompleted) continue;
    sum_s += EndToEnd(record);
    ++count;
  }
  if (count == 0 || sum_s / count <= run->window_begin_s) return;
  run->remarks.push_back(
      absl::StrFormat("the warm-up of %.1f s is shorter than a mean request of %.1f s",
                      run->window_begin_s, sum_s / count));
}

void CheckSteadiness(RunResult* run) {
  const double middle_s = (run->window_begin_s + run->window_end_s) / 2;
  double offered[2] = {}, good[2] = {};
  for (const RequestRecord& record : run->records) {
    if (!record.measured) continue;
    const bool second = record.scheduled_s >= middle_s;
    offered[second] += 1;
    good[second] += Judge(record, run->targets).good;
  }
  if (offered[0] == 0 || offered[1] == 0) return;
  const double share = (good[0] + good[1]) / (offered[0] + offered[1]);
  const double error = std::sqrt(share * (1 - share) * (1 / offered[0] + 1 / offered[1]));
  const double first = good[0] / offered[0], second = good[1] / offered[1];
  if (std::abs(first - second) <= std::max(0.03, 2 * error)) return;
  run->remarks.push_back(absl::StrFormat(
      "not steady: attainment %.1f %% in the first half of the window, %.1f %% in the second",
      100 * first, 100 * second));
}

void CheckWindow(RunResult* run) {
  const double window_s = run->window_end_s - run->window_begin_s;
  if (!run->targets.ttft_s.has_value() || window_s >= 25 * *run->targets.ttft_s) return;
  run->remarks.push_back(absl::StrFormat(
      "the window of %.1f s is shorter than 25 TTFT targets (%.1f s): overload can hide in a queue",
      window_s, 25 * *run->targets.ttft_s));
}

// Returns true if a request had already missed a target when the tool cancelled it, whatever tokens
// might still have come.
bool HadOverrun(const RequestRecord& record, const SloTargets& targets) {
  const double age_s = record.ended_s - record.scheduled_s;
  if (targets.e2e_s.has_value() && age_s > *targets.e2e_s) return true;
  if (record.token_s.empty()) return targets.ttft_s.has_value() && age_s > *targets.ttft_s;
  if (targets.ttft_s.has_value() && Ttft(record) > *targets.ttft_s) return true;
  return targets.tpot_s.has_value() && record.wanted_tokens > 1 &&
         (record.ended_s - record.token_s.front()) / (record.wanted_tokens - 1) > *targets.tpot_s;
}

}  // namespace

void EndWindowAtStop(RunResult* run) {
  for (const RequestRecord& record : run->records) {
    if (!record.measured || record.scheduled_s >= run->window_end_s) continue;
    const bool open = record.outcome == Outcome::kNotSent ||
                      (record.outcome == Outcome::kStopped && !HadOverrun(record, run->targets));
    if (!open) continue;
    run->window_end_s = record.scheduled_s;
    break;
  }
  run->window_begin_s = std::min(run->window_begin_s, run->window_end_s);
  for (RequestRecord& record : run->records)
    record.measured = record.measured && record.scheduled_s < run->window_end_s;
}

void JudgeBy(const SloTargets& targets, RunResult* run) {
  // Finds the remarks that came from checks against the old targets, and removes them.
  std::vector<std::string> remarks;
  remarks.swap(run->remarks);
  CheckRun(run);
  const auto of_checks = [&](const std::string& remark) {
    return std::find(run->remarks.begin(), run->remarks.end(), remark) != run->remarks.end();
  };
  remarks.erase(std::remove_if(remarks.begin(), remarks.end(), of_checks), remarks.end());
  run->remarks.swap(remarks);
  run->invalid.clear();
  run->targets = targets;
  for (RequestRecord& record : run->records) record.lost_to.clear();
  if (run->partial) EndWindowAtStop(run);
  CheckRun(run);
}

void CheckRun(RunResult* run) {
  CheckLag(run);
  CheckReading(run);
  CheckWarmup(run);
  CheckSteadiness(run);
  CheckWindow(run);
}

}  // namespace baton
