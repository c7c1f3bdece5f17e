#pragma once

#include "tests/goodput/command.h"

namespace baton {

// The subcommand `verdict FILE`: prints the verdict of a run file. Uses other targets if --slo
// names some.
Command VerdictCommand();

}  // namespace baton
