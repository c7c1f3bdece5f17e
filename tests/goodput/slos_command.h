#pragma once

#include "tests/goodput/command.h"

namespace baton {

// The subcommand `slos`: lists the SLOs that --slo finds by name, with their targets.
Command SlosCommand();

}  // namespace baton
