#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/goodput/plot/svg.h"
#include "tests/goodput/report/cell.h"

namespace baton {

struct ReportOptions {
  std::string title = "Goodput";
  std::string made_at;  // RFC 3339, UTC
};

// All of it on one page that needs nothing else: styles and plots inside, no script, light and
// dark.
std::string ReportPage(const std::vector<Cell>& cells, const ReportOptions& options);

// Every figure of the page, `baton_goodput_report` 1; described in README.md.
nlohmann::ordered_json ReportJson(const std::vector<Cell>& cells, const ReportOptions& options);

// The plots worth a file of their own, by file name.
std::vector<std::pair<std::string, SvgCanvas>> KeyPlots(const std::vector<Cell>& cells);

// The mode that others are held against where cells are compared: colocated if a cell has it, else
// the first cell's last mode; empty if no cell has two.
std::string BaseMode(const std::vector<Cell>& cells);

}  // namespace baton
