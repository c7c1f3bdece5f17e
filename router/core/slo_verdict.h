#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// A request's latency targets. A target that is not set is not judged.
struct LatencyTargets {
  std::optional<absl::Duration> ttft;  // Arrival to first token.
  std::optional<absl::Duration> tpot;  // Mean per token after the first.

  bool any() const { return ttft || tpot; }
};

// Reads the targets. Returns InvalidArgument for a target that is not a number of milliseconds
// above 0 and up to 1e9. Any thread.
absl::StatusOr<LatencyTargets> SloFromProto(const v1::Slo& slo);

// Decides whether an answer of `tokens` tokens met its targets, and which phase lost them if it did
// not. Judges TTFT before TPOT, and explains the first target that was missed:
// - If the work alone took longer than the target, the target was lost to the work: prefill for
//   TTFT, decode for TPOT.
// - Otherwise it was lost to the longest wait, the first named among equals. For TTFT: the queue,
//   or the rest until the token could be shown (handover). For TPOT: the exposed hand-over, the
//   wait for a place in the batch, or the rest (other: a broken attempt, a slow reader).
// `at_first` is `timing` as it was when the first token was shown. Time that an attempt after the
// loss of a worker adds later does not explain TTFT, and time before the first token does not
// explain TPOT. Any thread.
v1::SloVerdict JudgeSlo(const LatencyTargets& targets, const v1::Timing& at_first,
                        const v1::Timing& timing, size_t tokens);

}  // namespace baton
