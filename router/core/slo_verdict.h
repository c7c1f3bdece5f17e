#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// A request's latency targets. A target that is not set is not judged.
struct LatencyTargets {
  std::optional<absl::Duration> ttft;  // Time from arrival to the first token.
  std::optional<absl::Duration> tpot;  // Mean time per token after the first.

  bool any() const { return ttft || tpot; }
};

// Reads the targets. Returns InvalidArgument for a target that is not a number of milliseconds
// above 0 and up to 1e9. Any thread.
absl::StatusOr<LatencyTargets> SloFromProto(const v1::Slo& slo);

// Decides whether an answer of `tokens` tokens met its targets. If not, attributes the miss to a
// phase: `lost_to` of the verdict. If both targets were missed, explains the missed TTFT.
// - If computing alone took longer than the target, the phase is the computation: prefill for TTFT,
//   decode for TPOT.
// - Otherwise the phase is the longest wait. If two waits are equal, it is the one named first
//   here:
//   TTFT: the queue, then all other time until the token could be shown (handover).
//   TPOT: the exposed hand-over, the wait for a place in the batch, then all other time (other),
//   such as a broken attempt or a slow reader.
//
// `at_first` is `timing` as it was when the first token was shown. It is needed because `timing`
// goes on growing: if a worker is lost later, the next attempt adds its own phases. TTFT is
// explained only by time before the first token, and TPOT only by time after it. Any thread.
v1::SloVerdict JudgeSlo(const LatencyTargets& targets, const v1::Timing& at_first,
                        const v1::Timing& timing, size_t tokens);

}  // namespace baton
