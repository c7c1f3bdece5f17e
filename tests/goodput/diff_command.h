#pragma once

#include "tests/goodput/command.h"

namespace baton {

// `diff A B`: the figures of two runs or searches side by side.
Command DiffCommand();

}  // namespace baton
