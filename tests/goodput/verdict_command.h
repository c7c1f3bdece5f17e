#pragma once

#include "tests/goodput/command.h"

namespace baton {

// `verdict FILE`: prints the verdict of a run file again, by other targets if --slo names some.
Command VerdictCommand();

}  // namespace baton
