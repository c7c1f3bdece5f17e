#pragma once

#include "tests/goodput/command.h"

namespace baton {

// `search`: the highest rate at a given attainment, of one mode or of several in turn.
Command SearchCommand();

}  // namespace baton
