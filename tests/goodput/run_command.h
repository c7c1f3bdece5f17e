#pragma once

#include "tests/goodput/command.h"
#include "tests/goodput/results/record.h"

namespace baton {

// The subcommand `run`: runs one load and prints its verdict.
Command RunCommand();

// Returns the exit status for a run: kExitInterrupted if the run was stopped, else kExitFailed if a
// request failed or a token differed under --expect, else kExitInvalid if the run can't be trusted,
// else 0.
int ExitStatus(const RunResult& run);

}  // namespace baton
