#pragma once

#include <string>
#include <vector>

#include "tests/goodput/plot/chart.h"
#include "tests/goodput/report/cell.h"

namespace baton {

// The plots of a cell. In plots that compare modes, a mode has the same colour and marker
// everywhere.

int ModeColor(const Cell& cell, size_t mode);

// Attainment of each mode against offered rate, with 95 % bands, the goal and the capacities.
SvgCanvas AttainmentPlot(const Cell& cell);
// Attainment of one mode: for the TTFT target alone, for the TPOT target alone, and for both
// targets together.
SvgCanvas TargetsPlot(const Cell& cell, size_t mode);
// Good requests/s against offered requests/s, beyond saturation too.
SvgCanvas GoodputPlot(const Cell& cell);
// The capacity of each mode with its 95 % interval.
SvgCanvas CapacityPlot(const Cell& cell);
// The capacity of each mode divided by the capacity of the mode `base`, in every cell that has this
// mode and `base`.
SvgCanvas OverviewPlot(const std::vector<Cell>& cells, const std::string& base);

// Cumulative distribution of each latency over all offered requests, at the reference rate.
// Requests without an answer count as slower than any latency.
SvgCanvas TtftPlot(const Cell& cell);
SvgCanvas TpotPlot(const Cell& cell);
SvgCanvas W10Plot(const Cell& cell);
// Attainment at the reference rate, with both targets multiplied by 0.25 to 4. It shows if the
// result depends on the choice of the targets.
SvgCanvas ScalePlot(const Cell& cell);
// Mean time per phase of completed requests, one bar for each mode. Modes without phases in their
// records have no bar.
SvgCanvas PhasesPlot(const Cell& cell);
// The phases over time of four requests of one mode: the requests at P50, P90 and P99 of TTFT, and
// the slowest request.
SvgCanvas CoursesPlot(const Cell& cell, size_t mode);
bool HasPhases(const MeasuredLoad& load);

// Timelines of one load: requests that arrive and are in flight, and queues, batches and KV as read
// from /metrics. Returns one plot for each of these that has data.
std::vector<SvgCanvas> TimelinePlots(const MeasuredLoad& load);

}  // namespace baton
