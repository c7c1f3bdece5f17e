#pragma once

#include "tests/goodput/command.h"
#include "tests/goodput/results/record.h"

namespace baton {

// `run`: one load, one verdict.
Command RunCommand();

// What a run says of itself: it was stopped, a request failed or a token differed under --expect,
// it must not be believed; 0.
int ExitStatus(const RunResult& run);

}  // namespace baton
