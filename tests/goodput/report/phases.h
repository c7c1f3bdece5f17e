#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Phases of a request's time: those in the router's Summary, and the time outside that the client
// saw.
enum class Phase : size_t {
  kOutside,     // Client, network and the router's entrance: time that the Summary does not cover.
  kQueue,       // Waiting for a prefill worker.
  kPrefill,     // Computing the prompt.
  kHandover,    // Moving KV after the first token was ready.
  kDecodeWait,  // KV is complete; waiting for a place in the batch.
  kDecode,      // Decode steps.
  // In the router but in no other phase, such as waiting for free blocks on a decode worker.
  kOther,
};
inline constexpr size_t kPhases = 7;
const char* PhaseName(size_t phase);
int PhaseColor(size_t phase);

// Seconds in each phase, in the order of Phase. If phases do not overlap, their sum is the client's
// end-to-end time. All 0 for a request without phases.
using Course = std::array<double, kPhases>;
Course CourseOf(const RequestRecord& record);

// Cause for which a request was not good.
enum class Loss : size_t {
  kQueue,       // TTFT: most of it was waiting for prefill.
  kPrefill,     // TTFT: most of it was computing its own prompt.
  kFirstOther,  // TTFT: most of it was spent in the router, in no other phase.
  kHandover,    // Pace: moving KV after the first token.
  kDecodeWait,  // Pace: waiting for a place in the batch.
  kDecode,      // Pace: the decode steps themselves.
  kOutside,     // TTFT or pace: time outside the router.
  kUntold,      // A target was missed, but no Summary tells the cause.
  kRejected,
  kTimedOut,
  kFailed,   // Any other status, or not the length that was asked for.
  kStopped,  // The tool cancelled the request: a partial run.
};
inline constexpr size_t kLosses = 12;
const char* LossName(size_t loss);

// Returns the cause for which `record` was not good. It looks at the target that was overrun by
// more seconds: that of the first token, or those of all later tokens together. The cause is the
// longest phase before or after the first token. Decode counts only with the time beyond its
// targets.
Loss LossOf(const RequestRecord& record, const SloTargets& targets);

// Counts of requests that were not good, by loss and by quartile of prompt length (the quartiles of
// Verdict).
struct LossTable {
  std::array<std::array<int, 4>, kLosses> counts{};
  std::array<int, 4> offered{};
  int lost = 0;

  int Total(size_t loss) const;
};
LossTable LossesOf(const RunResult& run);

}  // namespace baton
