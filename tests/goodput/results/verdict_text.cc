#include "tests/goodput/results/verdict_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

std::string Ms(double seconds) { return absl::StrFormat("%.2f ms", seconds * 1e3); }

std::string TargetText(const char* name, const std::optional<double>& seconds) {
  return seconds.has_value() ? absl::StrCat(", ", name, " ", Ms(*seconds)) : "";
}

std::string Share(uint32_t part, uint32_t whole) {
  return whole == 0 ? "-" : absl::StrFormat("%.2f %%", 100.0 * part / whole);
}

std::string LatencyLine(const char* name, const Percentiles& percentiles) {
  return absl::StrFormat("  %-22s %10.2f %10.2f %10.2f %10.2f  ms\n", name, percentiles.p50 * 1e3,
                         percentiles.p90 * 1e3, percentiles.p99 * 1e3, percentiles.max * 1e3);
}

std::string PhaseLine(const char* name, double seconds) {
  return absl::StrFormat("  - %-20s %10.2f ms\n", name, seconds * 1e3);
}

std::string PhaseLines(const Verdict& verdict) {
  const PhaseTimes& mean = verdict.mean_phases;
  return absl::StrCat("mean time by phase, of ", verdict.with_phases, " that told it\n",
                      PhaseLine("queue", mean.queue_s), PhaseLine("prefill", mean.prefill_s),
                      PhaseLine("hand-over hidden", mean.handover_hidden_s),
                      PhaseLine("hand-over exposed", mean.handover_exposed_s),
                      PhaseLine("wait for decode", mean.decode_wait_s),
                      PhaseLine("decode", mean.decode_s));
}

std::string ExpectLines(const ExpectResult& expect) {
  if (expect.written) {
    return absl::StrCat("tokens written to ", expect.file, "; ", expect.failed,
                        " requests failed and are not in it\n");
  }
  std::string text = absl::StrCat("tokens held against ", expect.file, ": ", expect.equal, " of ",
                                  expect.compared, " equal, ", expect.different, " different, ",
                                  expect.failed, " failed, ", expect.unknown, " not in the file\n");
  for (const std::string& difference : expect.differences)
    absl::StrAppend(&text, "  - ", difference, "\n");
  return text;
}

}  // namespace

std::string VerdictText(const RunResult& run, const Verdict& verdict) {
  std::string text;
  if (run.partial) absl::StrAppend(&text, "PARTIAL: the load was stopped before its end\n");
  for (const std::string& why : run.invalid) absl::StrAppend(&text, "INVALID: ", why, "\n");
  absl::StrAppend(&text, "goodput ", absl::StrFormat("%.3f", verdict.goodput), " requests/s of ",
                  absl::StrFormat("%.3f", verdict.offered_rate), " offered: ", verdict.good, " of ",
                  verdict.offered, " were good, attainment ", Share(verdict.good, verdict.offered),
                  "\n");
  absl::StrAppend(&text, "targets ", run.targets.name.empty() ? "none" : run.targets.name,
                  TargetText("TTFT", run.targets.ttft_s), TargetText("TPOT", run.targets.tpot_s),
                  TargetText("end to end", run.targets.e2e_s), "\n");
  absl::StrAppend(&text, "strict goodput (W10 at most twice the TPOT target too) ",
                  absl::StrFormat("%.3f", verdict.strict_goodput), " requests/s, attainment ",
                  Share(verdict.strict, verdict.offered), "\n");
  absl::StrAppend(&text, "TTFT alone ", Share(verdict.ttft_met, verdict.offered), ", TPOT alone ",
                  Share(verdict.tpot_met, verdict.offered), "\n");
  absl::StrAppend(&text, "token goodput ", absl::StrFormat("%.1f", verdict.token_goodput),
                  " tokens/s of ", absl::StrFormat("%.1f", verdict.token_rate), " received\n");
  absl::StrAppendFormat(&text, "  %-22s %10s %10s %10s %10s\n", "of completed requests", "P50",
                        "P90", "P99", "longest");
  absl::StrAppend(&text, LatencyLine("TTFT", verdict.ttft), LatencyLine("TPOT", verdict.tpot),
                  LatencyLine("W10", verdict.w10), LatencyLine("end to end", verdict.e2e));
  if (verdict.single_token > 0) {
    absl::StrAppend(&text, "  ", verdict.single_token,
                    " answers of one token have no TPOT: judged by TTFT alone\n");
  }
  absl::StrAppend(&text, "attainment by prompt length\n");
  for (const PromptQuartile& quartile : verdict.quartiles) {
    if (quartile.offered == 0) continue;
    absl::StrAppendFormat(&text, "  - %6u to %6u tokens %9s of %u\n", quartile.shortest_tokens,
                          quartile.longest_tokens, Share(quartile.good, quartile.offered),
                          quartile.offered);
  }
  if (verdict.with_phases > 0) absl::StrAppend(&text, PhaseLines(verdict));
  if (!verdict.lost_to.empty()) {
    absl::StrAppend(&text, "missed targets were lost to, says the router:");
    for (const auto& [phase, count] : verdict.lost_to)
      absl::StrAppend(&text, " ", phase, " ", count);
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "requests");
  for (const auto& [name, count] : verdict.outcomes) absl::StrAppend(&text, " ", name, " ", count);
  absl::StrAppend(&text, "\n");
  for (const auto& [status, count] : verdict.failures)
    absl::StrAppend(&text, "  - ", status, " ", count, "\n");
  absl::StrAppend(&text, "the tool itself: ", verdict.lag.late, " of ", verdict.lag.sent,
                  " sent more than 1 ms late, P99 ", Ms(verdict.lag.p99_s), ", worst ",
                  Ms(verdict.lag.worst_s), "\n");
  if (run.expect.has_value()) absl::StrAppend(&text, ExpectLines(*run.expect));
  for (const std::string& remark : run.remarks) absl::StrAppend(&text, "note: ", remark, "\n");
  return text;
}

}  // namespace baton
