#pragma once

#include "tests/goodput/command.h"

namespace baton {

// The subcommand `search`: finds the highest rate at which attainment reaches a goal, for one mode
// or for several modes in turn.
Command SearchCommand();

}  // namespace baton
