#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/core/phase_micros.h"

namespace baton {

// A request's latency targets. A target that is not set is not judged.
struct LatencyTargets {
  std::optional<absl::Duration> ttft;  // Time from arrival to the first token.
  std::optional<absl::Duration> tpot;  // Mean time per token after the first.

  bool any() const { return ttft || tpot; }
};

// The phase of a request to which a missed latency target is attributed. The values are those of
// v1::SloPhase.
enum class SloPhase {
  kUnspecified = 0,  // No target was missed.
  kQueue = 1,        // Waited too long until a worker began with the prompt.
  kPrefill = 2,      // Computing the prompt alone took longer than the target.
  // Waited too long for a decode worker with free blocks, or for the KV to arrive.
  kHandover = 3,
  kDecodeWait = 4,  // Waited too long for a place in the batch.
  kDecode = 5,      // The decode steps alone took longer than the target.
  kOther = 6,       // A worker broke off an attempt, or the client read too slowly.
};
inline constexpr size_t kSloPhases = 7;

struct SloVerdict {
  std::optional<bool> ttft_met;  // Set if the request has this target.
  std::optional<bool> tpot_met;  // The same; true for answers of one token.
  // If both targets were missed, the phase for TTFT.
  SloPhase lost_to = SloPhase::kUnspecified;

  bool met() const { return ttft_met.value_or(true) && tpot_met.value_or(true); }
};

// Reads the targets, in milliseconds. Returns InvalidArgument, with the parameter's name, for one
// that is not above 0 and up to 1e9. Any thread.
absl::StatusOr<LatencyTargets> TargetsFromMs(std::optional<double> ttft_ms,
                                             std::optional<double> tpot_ms);

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
SloVerdict JudgeSlo(const LatencyTargets& targets, const PhaseMicros& at_first,
                    const PhaseMicros& timing, size_t tokens);

}  // namespace baton
