#pragma once

#include "tests/goodput/results/record.h"

namespace baton {

// Checks if the run can be trusted. Adds reasons not to trust it to run->invalid, and limitations
// to run->remarks.
// Invalid:
// - The tool sent late: the P99 of its lag is above 5 % of the TTFT target (2 ms without this
//   target).
// Remarks:
// - The tool may have read late: the part of TTFT that passes outside the router has a P99 above
//   5 ms and above 5 % of the TTFT target.
// - The warm-up is shorter than a mean request.
// - The attainment of the two halves of the window differs by more than 3 points and two standard
//   errors.
// - The window is shorter than 25 TTFT targets. Overload can then hide in a queue.
void CheckRun(RunResult* run);

// Adjusts the window of a load that was stopped. Requests that the tool cancelled or did not send
// are not misses of the server. So the window ends before the first of them. A cancelled request
// that had already missed a target does not end the window: it counts as a miss.
void EndWindowAtStop(RunResult* run);

// Judges the run by `targets` instead of the targets that the run had. Replaces the remarks that
// CheckRun made about the old targets. Clears `lost_to` of all records, because the router computed
// `lost_to` from the old targets.
void JudgeBy(const SloTargets& targets, RunResult* run);

}  // namespace baton
