#pragma once

#include "tests/goodput/command.h"

namespace baton {

// `run`: one load, one verdict.
Command RunCommand();

}  // namespace baton
