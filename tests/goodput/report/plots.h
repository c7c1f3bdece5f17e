#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/chart.h"
#include "tests/goodput/report/cell.h"

namespace baton {

// The plots of a cell. Where modes are compared, each keeps its colour and marker in all plots.

int ModeColor(const Cell& cell, size_t mode);

// Attainment of each mode against offered rate, with 95 % bands, the goal and the capacities.
SvgCanvas AttainmentPlot(const Cell& cell);
// Of one mode: both targets together, and each alone.
SvgCanvas TargetsPlot(const Cell& cell, size_t mode);
// Good requests/s against offered requests/s, past saturation too.
SvgCanvas GoodputPlot(const Cell& cell);
// The capacity of each mode with its 95 % interval.
SvgCanvas CapacityPlot(const Cell& cell);
// Each mode's capacity relative to that of `base` in every cell that has both.
SvgCanvas OverviewPlot(const std::vector<Cell>& cells, const std::string& base);

// For each latency, the share of the offered requests that took no longer, at the reference rate.
// Requests without an answer count as offered, and as longer than any latency.
SvgCanvas TtftPlot(const Cell& cell);
SvgCanvas TpotPlot(const Cell& cell);
SvgCanvas W10Plot(const Cell& cell);
// Attainment at the reference rate, were both targets multiplied by 0.25 to 4: whether the result
// hangs on one lucky pair.
SvgCanvas ScalePlot(const Cell& cell);
// Mean time by phase of completed requests, a bar for each mode; modes whose requests told no
// phases have none.
SvgCanvas PhasesPlot(const Cell& cell);
// The course of the requests at P50, P90, P99 of TTFT and of the slowest, in one mode.
SvgCanvas CoursesPlot(const Cell& cell, size_t mode);
bool HasPhases(const MeasuredLoad& load);

// Over the time of one load: requests that arrive, are in flight, and what /metrics told of queues,
// batches and KV. One plot for each that there is.
std::vector<SvgCanvas> TimelinePlots(const MeasuredLoad& load);

}  // namespace baton
