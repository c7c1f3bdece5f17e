#pragma once

#include "tests/goodput/command.h"

namespace baton {

// The subcommand `search`: finds the highest rate at a given attainment, for one mode or for
// several in turn.
Command SearchCommand();

}  // namespace baton
