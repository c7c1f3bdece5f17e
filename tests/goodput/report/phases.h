#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Where the time of a request went: the phases that the router's Summary tells, and what the client
// saw beyond them.
enum class Phase : size_t {
  kOutside,     // client, network, router's door: what the Summary does not cover
  kQueue,       // waiting for a prefill worker
  kPrefill,     // computing the prompt
  kHandover,    // moving KV after the first token was there
  kDecodeWait,  // KV complete, waiting for a place in the batch
  kDecode,      // decode steps
  kOther,       // within the router, told by no phase: waiting for room at a decode worker, say
};
inline constexpr size_t kPhases = 7;
const char* PhaseName(size_t phase);
int PhaseColor(size_t phase);

// Seconds in each phase, in the order of Phase; their sum is the client's end-to-end time where the
// phases do not overlap. Nothing for a request without phases.
using Course = std::array<double, kPhases>;
Course CourseOf(const RequestRecord& record);

// What a request that was not good lost its target to.
enum class Loss : size_t {
  kQueue,       // TTFT: the largest part of it was waiting for prefill
  kPrefill,     // TTFT: its own prompt took longest
  kFirstOther,  // TTFT: within the router, told by no phase
  kHandover,    // pace: moving KV after the first token
  kDecodeWait,  // pace: waiting for a place in the batch
  kDecode,      // pace: the decode steps themselves
  kOutside,     // either: outside of the router
  kUntold,      // late, but no Summary says where
  kRejected,
  kTimedOut,
  kFailed,   // any other status, or another length than asked
  kStopped,  // the tool gave up on it: a partial run
};
inline constexpr size_t kLosses = 12;
const char* LossName(size_t loss);

// Of the targets it missed, the one it overran by more (the first token's, or all later ones'
// together); of the phases before or after the first token, the longest, decode counting only with
// what it took beyond its targets. `record` was not good.
Loss LossOf(const RequestRecord& record, const SloTargets& targets);

// Requests that were not good, by loss and by quartile of prompt length (those of Verdict).
struct LossTable {
  std::array<std::array<int, 4>, kLosses> counts{};
  std::array<int, 4> offered{};
  int lost = 0;

  int Total(size_t loss) const;
};
LossTable LossesOf(const RunResult& run);

}  // namespace baton
