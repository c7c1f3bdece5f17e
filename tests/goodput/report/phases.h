#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Phases of a request's time: the phases in the router's Summary, and the time outside the router
// that only the client sees.
enum class Phase : size_t {
  // Time that the Summary does not cover: in the client, in the network, and at the router's
  // entrance.
  kOutside,
  kQueue,       // Time of waiting for a prefill worker.
  kPrefill,     // Time for computing the prompt.
  kHandover,    // Time for moving KV after the first token was ready.
  kDecodeWait,  // Time of waiting for a place in the batch, after the KV is complete.
  kDecode,      // Time of the decode steps.
  // Time in the router that belongs to no other phase, such as waiting for free blocks on a decode
  // worker.
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
  kQueue,       // TTFT missed, mostly by waiting for prefill.
  kPrefill,     // TTFT missed, mostly by computing the request's own prompt.
  kFirstOther,  // TTFT missed, mostly by time in the router that belongs to no other phase.
  kHandover,    // Pace missed, mostly by moving KV after the first token.
  kDecodeWait,  // Pace missed, mostly by waiting for a place in the batch.
  kDecode,      // Pace missed, mostly by the decode steps themselves.
  kOutside,     // TTFT or pace missed, mostly by time that passed outside the router.
  kUntold,      // A target was missed, but no Summary tells the cause.
  kRejected,
  kTimedOut,
  kFailed,   // The request ended with another status, or not with the length that was asked for.
  kStopped,  // The tool cancelled the request, so the run is partial.
};
inline constexpr size_t kLosses = 12;
const char* LossName(size_t loss);

// Returns the cause for which `record` was not good. If the TTFT target was missed, the cause is
// the longest phase before the first token. If the TPOT target was missed, it is the longest phase
// after the first token; of decode, only the time beyond what the target allows counts. If both
// were missed, the target that was missed by more seconds decides: for TPOT, these are the seconds
// by which the last token was late.
Loss LossOf(const RequestRecord& record, const SloTargets& targets);

// Counts of requests that were not good, by loss and by quartile of prompt length. The quartiles
// are those of Verdict.
struct LossTable {
  std::array<std::array<int, 4>, kLosses> counts{};
  std::array<int, 4> offered{};
  int lost = 0;

  int Total(size_t loss) const;
};
LossTable LossesOf(const RunResult& run);

}  // namespace baton
