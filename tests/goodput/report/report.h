#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "tests/goodput/plot/svg.h"
#include "tests/goodput/report/cell.h"

namespace baton {

struct ReportOptions {
  std::string title = "Goodput";
  std::string made_at;  // Time at which the report was made, in RFC 3339, UTC.
};

// Returns the whole report as one page that needs no other file: styles and plots are inside, and
// there is no script. It has a light and a dark theme.
std::string ReportPage(const std::vector<Cell>& cells, const ReportOptions& options);

// Returns every figure of the page as JSON, format `baton_goodput_report` version 1.
// tests/goodput/README.md describes it.
nlohmann::ordered_json ReportJson(const std::vector<Cell>& cells, const ReportOptions& options);

// Returns the most important plots with their file names.
std::vector<std::pair<std::string, SvgCanvas>> KeyPlots(const std::vector<Cell>& cells);

// Returns the mode to which other modes are compared: colocated if a cell has this mode, else the
// last mode of the first cell. Returns an empty text if no cell has two modes.
std::string BaseMode(const std::vector<Cell>& cells);

}  // namespace baton
