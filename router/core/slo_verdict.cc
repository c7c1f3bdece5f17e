#include "router/core/slo_verdict.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr double kMaxMs = 1e9;

absl::Status CheckTarget(absl::string_view name, double ms) {
  if (ms > 0 && ms <= kMaxMs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("slo.", name, " is ", ms, "; it takes milliseconds above 0, up to ", kMaxMs));
}

v1::SloPhase Longest(std::initializer_list<std::pair<v1::SloPhase, int64_t>> waits) {
  const auto* longest = waits.begin();
  for (const auto& wait : waits) {
    if (wait.second > longest->second) longest = &wait;
  }
  return longest->first;
}

}  // namespace

absl::StatusOr<LatencyTargets> SloFromProto(const v1::Slo& slo) {
  LatencyTargets targets;
  if (slo.has_ttft_ms()) {
    RETURN_IF_ERROR(CheckTarget("ttft_ms", slo.ttft_ms()));
    targets.ttft = absl::Milliseconds(slo.ttft_ms());
  }
  if (slo.has_tpot_ms()) {
    RETURN_IF_ERROR(CheckTarget("tpot_ms", slo.tpot_ms()));
    targets.tpot = absl::Milliseconds(slo.tpot_ms());
  }
  return targets;
}

v1::SloVerdict JudgeSlo(const LatencyTargets& targets, const v1::Timing& at_first,
                        const v1::Timing& timing, size_t tokens) {
  v1::SloVerdict verdict;
  const auto us = [](uint64_t microseconds) { return static_cast<int64_t>(microseconds); };
  const int64_t ttft = us(timing.ttft_us()), after = us(timing.total_us()) - ttft;
  if (targets.ttft) verdict.set_ttft_met(absl::Microseconds(ttft) <= *targets.ttft);
  const auto later = static_cast<int64_t>(tokens < 2 ? 0 : tokens - 1);
  const absl::Duration budget = targets.tpot.value_or(absl::ZeroDuration()) * later;
  if (targets.tpot) verdict.set_tpot_met(later == 0 || absl::Microseconds(after) <= budget);
  const bool ttft_lost = verdict.has_ttft_met() && !verdict.ttft_met();
  const bool tpot_lost = verdict.has_tpot_met() && !verdict.tpot_met();
  verdict.set_met(!ttft_lost && !tpot_lost);
  if (ttft_lost) {
    const int64_t queue = us(at_first.queue_us()), prefill = us(at_first.prefill_us());
    verdict.set_lost_to(absl::Microseconds(prefill) > *targets.ttft
                            ? v1::SLO_PHASE_PREFILL
                            : Longest({{v1::SLO_PHASE_QUEUE, queue},
                                       {v1::SLO_PHASE_HANDOVER, ttft - queue - prefill}}));
  } else if (tpot_lost) {
    const int64_t exposed = us(timing.handover_exposed_us()) - us(at_first.handover_exposed_us()),
                  wait = us(timing.decode_wait_us()) - us(at_first.decode_wait_us()),
                  decode = us(timing.decode_us()) - us(at_first.decode_us());
    verdict.set_lost_to(absl::Microseconds(decode) > budget
                            ? v1::SLO_PHASE_DECODE
                            : Longest({{v1::SLO_PHASE_HANDOVER, exposed},
                                       {v1::SLO_PHASE_DECODE_WAIT, wait},
                                       {v1::SLO_PHASE_OTHER, after - exposed - wait - decode}}));
  }
  return verdict;
}

}  // namespace baton
