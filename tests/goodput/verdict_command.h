#pragma once

#include "tests/goodput/command.h"

namespace baton {

// `verdict FILE`: prints the verdict of a run file again.
Command VerdictCommand();

}  // namespace baton
