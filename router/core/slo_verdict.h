#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// A request's latency targets; what is not set is not asked for.
struct LatencyTargets {
  std::optional<absl::Duration> ttft;  // arrival to first token
  std::optional<absl::Duration> tpot;  // mean per token after the first

  bool any() const { return ttft || tpot; }
};

// InvalidArgument for a target that is no number of milliseconds above 0 and up to 1e9.
absl::StatusOr<LatencyTargets> SloFromProto(const v1::Slo& slo);

// Whether an answer of `tokens` tokens met them, and what lost them when it did not. TTFT is looked
// at before TPOT, and the first that was missed is explained:
// - the work alone took longer than the target: lost to it (prefill for TTFT, decode for TPOT);
// - else lost to the longest wait: for TTFT queue, or the rest until the token could be shown
//   (handover); for TPOT the exposed hand-over, the wait for a place in the batch, or the rest
//   (other: a broken try, a slow reader). Of equal ones the first named.
// `at_first` is `timing` as it was when the first token was shown: what a try after a worker's loss
// adds later explains no TTFT, and what was before it no TPOT.
v1::SloVerdict JudgeSlo(const LatencyTargets& targets, const v1::Timing& at_first,
                        const v1::Timing& timing, size_t tokens);

}  // namespace baton
