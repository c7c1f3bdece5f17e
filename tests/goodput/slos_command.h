#pragma once

#include "tests/goodput/command.h"

namespace baton {

// Lists the SLOs that --slo finds by their names, with their targets.
Command SlosCommand();

}  // namespace baton
