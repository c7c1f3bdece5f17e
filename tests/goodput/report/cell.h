#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/goodput/results/record.h"
#include "tests/goodput/results/verdict.h"
#include "tests/goodput/search/capacity.h"
#include "tests/goodput/search/search_result.h"

namespace baton {

// One load and the figures computed from it.
struct MeasuredLoad {
  explicit MeasuredLoad(RunResult result);

  RunResult run;
  std::string purpose;  // Purpose within its search; empty for a run outside a search.
  Verdict verdict;
  // One value for each measured request, in order of arrival: 1 if the request was good, met its
  // TTFT target, or met its TPOT target.
  std::vector<uint8_t> good, ttft_met, tpot_met;
  Share attainment, ttft_share, tpot_share;
};

// One mode in a cell.
struct CellMode {
  std::string name;
  std::vector<MeasuredLoad> loads;  // Sorted by rate, then in the order in which they ran.
  bool searched = false, finished = false;
  std::optional<ConfirmedRates> confirmed;  // Set if a search confirmed the capacity below.
  std::vector<std::string> notes;
  Capacity capacity;
};

// Measurements under equal terms: one workload, one model, one pair of targets and one goal. A
// comparison is between the modes of a cell.
struct Cell {
  std::string title;     // Short name: targets and workload.
  std::string workload;  // Description by the workload's flags.
  std::string model;
  SloTargets targets;
  double goal = 0.9;
  std::vector<CellMode> modes;
  std::vector<std::vector<Ratio>> ratios;  // Ratios of capacities, [mode][base].
  std::vector<std::string> remarks;
  std::map<std::string, std::string> spec;  // Flags of its first load.
  bool partial = false;

  // Returns the index of the mode with the highest capacity. Capacities known only as an upper
  // bound come last. Returns -1 if no capacity is known.
  int Best() const;
  // Returns true if no other mode's capacity can be higher, given the bounds.
  bool BestIsShown() const;
  // Returns the rate at which modes are compared: that of the loads that a search ran for the
  // comparison, else the highest capacity, else the highest measured rate.
  double ReferenceRate() const;
};
// Returns the load of `mode` whose rate is nearest to `rate` (in proportion). Among loads of one
// rate, complete ones come before partial ones, then loads run to compare modes, then longer ones.
// Null if there is no load.
const MeasuredLoad* LoadNear(const CellMode& mode, double rate);

// An input file of a report.
struct InputFile {
  std::string path;
  std::vector<RunResult> runs;  // Either `runs` or `searches` has one entry.
  std::vector<SearchResult> searches;
};
// Reads a run or a search. The error names the file and the place in it.
absl::StatusOr<InputFile> ReadInputFile(const std::string& path);

// Returns InvalidArgument, with the file's name, if a search looked for another attainment than
// `goal`.
absl::Status CheckGoal(const InputFile& file, double goal);

// Sorts loads into cells, in the order of the files. Single runs are judged against `goal`.
std::vector<Cell> CellsOf(std::vector<InputFile> files, double goal);

}  // namespace baton
