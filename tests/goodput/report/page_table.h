#pragma once

#include <string>
#include <vector>

#include "tests/goodput/report/cell.h"

namespace baton {

// The tables of a report's page, as HTML.

// Table of all cells: the best mode of each, and its ratio to the others.
std::string OverviewTable(const std::vector<Cell>& cells);
std::string LatencyTable(const Cell& cell);   // Latencies of each mode at the reference rate.
std::string QuartileTable(const Cell& cell);  // Attainment by prompt length.
std::string LossSection(const Cell& cell, size_t mode);  // Losses by quartile of prompt length.
std::string IntegritySection(const Cell& cell);
std::string LoadsTable(const Cell& cell);
std::string EnvironmentTable(const Cell& cell);

}  // namespace baton
