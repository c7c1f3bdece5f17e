#pragma once

#include "tests/goodput/command.h"

namespace baton {

// The subcommand `diff A B`: prints the figures of two runs or searches side by side.
Command DiffCommand();

}  // namespace baton
