#include "router/core/slo_verdict.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr double kMaxMs = 1e9;

absl::Status CheckTarget(absl::string_view name, double ms) {
  if (ms > 0 && ms <= kMaxMs) return absl::OkStatus();
  return BadParameter(
      absl::StrCat("slo.", name),
      absl::StrCat("slo.", name, " is ", ms, "; it takes milliseconds above 0, up to ", kMaxMs));
}

SloPhase Longest(std::initializer_list<std::pair<SloPhase, int64_t>> waits) {
  const auto* longest = waits.begin();
  for (const auto& wait : waits) {
    if (wait.second > longest->second) longest = &wait;
  }
  return longest->first;
}

}  // namespace

absl::StatusOr<LatencyTargets> TargetsFromMs(std::optional<double> ttft_ms,
                                             std::optional<double> tpot_ms) {
  LatencyTargets targets;
  if (ttft_ms) {
    RETURN_IF_ERROR(CheckTarget("ttft_ms", *ttft_ms));
    targets.ttft = absl::Milliseconds(*ttft_ms);
  }
  if (tpot_ms) {
    RETURN_IF_ERROR(CheckTarget("tpot_ms", *tpot_ms));
    targets.tpot = absl::Milliseconds(*tpot_ms);
  }
  return targets;
}

SloVerdict JudgeSlo(const LatencyTargets& targets, const PhaseMicros& at_first,
                    const PhaseMicros& timing, size_t tokens) {
  SloVerdict verdict;
  const auto us = [](uint64_t microseconds) { return static_cast<int64_t>(microseconds); };
  const int64_t ttft = us(timing.ttft_us), after = us(timing.total_us) - ttft;
  if (targets.ttft) verdict.ttft_met = absl::Microseconds(ttft) <= *targets.ttft;
  const auto later = static_cast<int64_t>(tokens < 2 ? 0 : tokens - 1);
  const absl::Duration budget = targets.tpot.value_or(absl::ZeroDuration()) * later;
  if (targets.tpot) verdict.tpot_met = later == 0 || absl::Microseconds(after) <= budget;
  const bool ttft_lost = !verdict.ttft_met.value_or(true);
  const bool tpot_lost = !verdict.tpot_met.value_or(true);
  if (ttft_lost) {
    const int64_t queue = us(at_first.queue_us), prefill = us(at_first.prefill_us);
    verdict.lost_to =
        absl::Microseconds(prefill) > *targets.ttft
            ? SloPhase::kPrefill
            : Longest({{SloPhase::kQueue, queue}, {SloPhase::kHandover, ttft - queue - prefill}});
  } else if (tpot_lost) {
    const int64_t exposed = us(timing.handover_exposed_us) - us(at_first.handover_exposed_us),
                  wait = us(timing.decode_wait_us) - us(at_first.decode_wait_us),
                  decode = us(timing.decode_us) - us(at_first.decode_us);
    verdict.lost_to = absl::Microseconds(decode) > budget
                          ? SloPhase::kDecode
                          : Longest({{SloPhase::kHandover, exposed},
                                     {SloPhase::kDecodeWait, wait},
                                     {SloPhase::kOther, after - exposed - wait - decode}});
  }
  return verdict;
}

}  // namespace baton
