#pragma once

#include "tests/goodput/record.h"

namespace baton {

// Fills run->invalid with what forbids believing the run, and adds to run->remarks what limits it:
//   invalid  the tool's own lag: P99 above 5 % of the TTFT target (2 ms without one)
//   remarks  warm-up shorter than a mean request; attainment of the two halves of the window apart
//            by more than 3 points and two standard errors; window shorter than 25 TTFT targets,
//            within which overload can hide in a queue
void CheckRun(RunResult* run);

}  // namespace baton
