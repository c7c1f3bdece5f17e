#pragma once

#include "tests/goodput/command.h"

namespace baton {

// `report FILE...`: a page, its figures as JSON and its key plots as SVG files.
Command ReportCommand();

}  // namespace baton
