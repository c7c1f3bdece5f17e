#pragma once

#include "tests/goodput/command.h"

namespace baton {

// The subcommand `report FILE...`: writes a page, its figures as JSON and its key plots as SVG
// files.
Command ReportCommand();

}  // namespace baton
