#include "tests/goodput/run_checks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "tests/goodput/verdict.h"

namespace baton {
namespace {

constexpr double kLagShareOfTtft = 0.05;
constexpr double kLagWithoutTarget_s = 2e-3;

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

}  // namespace

void CheckRun(RunResult* run) {
  CheckLag(run);
  CheckWarmup(run);
  CheckSteadiness(run);
  CheckWindow(run);
}

}  // namespace baton
