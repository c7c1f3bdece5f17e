#pragma once

#include "tests/goodput/results/record.h"

namespace baton {

// Fills run->invalid with what forbids believing the run, and adds to run->remarks what limits it:
//   invalid  the tool's own lag: P99 above 5 % of the TTFT target (2 ms without one)
//   remarks  P99 of what a TTFT has beyond the router's own above 5 ms and 5 % of the target (the
//            tool reads late); warm-up shorter than a mean request; attainment of the two halves
//            of the window apart by more than 3 points and two standard errors; window shorter than
//            25 TTFT targets, within which overload can hide in a queue
void CheckRun(RunResult* run);

// Of a load that was stopped: what the tool cancelled, or did not send any more, is no miss of the
// server's. Ends the window before the first request that might still have been good; one that had
// overrun a target when it was cancelled stays a miss.
void EndWindowAtStop(RunResult* run);

// Judges the run by other targets: CheckRun's words on the old ones are replaced, and what the
// router says that those were lost to is forgotten.
void JudgeBy(const SloTargets& targets, RunResult* run);

}  // namespace baton
