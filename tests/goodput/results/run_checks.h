#pragma once

#include "tests/goodput/results/record.h"

namespace baton {

// Checks if the run can be trusted. Adds to run->invalid what makes it invalid, and to run->remarks
// what limits it:
//   invalid  the tool's own lag: P99 above 5 % of the TTFT target (2 ms without one)
//   remarks  P99 of the TTFT outside the router above 5 ms and 5 % of the target (the tool reads
//            late); warm-up shorter than a mean request; attainment of the two halves of the window
//            apart by more than 3 points and two standard errors; window shorter than 25 TTFT
//            targets, within which overload can hide in a queue
void CheckRun(RunResult* run);

// Adjusts the window of a load that was stopped. Requests that the tool cancelled or did not send
// are not misses of the server. So the window ends before the first request that might still have
// been good. A request that had already overrun a target when it was cancelled stays a miss.
void EndWindowAtStop(RunResult* run);

// Judges the run by other targets. Replaces the remarks of CheckRun about the old targets, and
// clears what the router says that the old targets were lost to.
void JudgeBy(const SloTargets& targets, RunResult* run);

}  // namespace baton
