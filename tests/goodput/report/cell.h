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
  std::string purpose;  // Purpose of the load in its search; empty for a run outside a search.
  Verdict verdict;
  // One value for each measured request, in order of arrival. It is 1 in `good` if the request was
  // good, in `ttft_met` if it met its TTFT target, and in `tpot_met` if it met its TPOT target;
  // else 0.
  std::vector<uint8_t> good, ttft_met, tpot_met;
  Share attainment, ttft_share, tpot_share;
};

// The loads of one mode in a cell (see Cell below), and the capacity of this mode.
struct CellMode {
  std::string name;
  // Sorted by rate; loads of one rate are in the order in which they ran.
  std::vector<MeasuredLoad> loads;
  bool searched = false, finished = false;
  std::optional<ConfirmedRates> confirmed;  // Set if a search confirmed `capacity`.
  std::vector<std::string> notes;
  Capacity capacity;
};

// Measurements that can be compared, because they have the same workload, model, targets and goal.
// The modes of a cell are compared with each other.
struct Cell {
  std::string title;     // Short name: targets and workload.
  std::string workload;  // The workload, described by its flags.
  std::string model;
  SloTargets targets;
  double goal = 0.9;
  std::vector<CellMode> modes;
  // Ratios of the modes' capacities, indexed by [mode][base].
  std::vector<std::vector<Ratio>> ratios;
  std::vector<std::string> remarks;
  std::map<std::string, std::string> spec;  // Flags of the cell's first load.
  bool partial = false;

  // Returns the index of the mode with the highest capacity. A capacity that is only an upper bound
  // is ranked last. Returns -1 if no capacity is known.
  int Best() const;
  // Returns true if no other known capacity can be higher than that of the mode Best(), even where
  // a capacity is only known as an upper or lower bound.
  bool BestIsShown() const;
  // Returns the rate at which modes are compared. This is the rate of the loads that a search ran
  // for the comparison. Without such loads it is the highest capacity, and without a capacity the
  // highest measured rate.
  double ReferenceRate() const;
};
// Returns the load of `mode` whose rate is nearest to `rate` (in proportion). Among loads of one
// rate, prefers a complete load, then a load that was run to compare modes, then a longer load.
// Returns null if `mode` has no load.
const MeasuredLoad* LoadNear(const CellMode& mode, double rate);

// The content of one input file of a report.
struct InputFile {
  std::string path;
  // One of the vectors `runs` and `searches` has one entry; the other is empty.
  std::vector<RunResult> runs;
  std::vector<SearchResult> searches;
};
// Reads a run or a search. The error names the file and the position in it.
absl::StatusOr<InputFile> ReadInputFile(const std::string& path);

// Returns InvalidArgument, with the file's name, if a search looked for another attainment than
// `goal`.
absl::Status CheckGoal(const InputFile& file, double goal);

// Sorts loads into cells, in the order of the files. Single runs are judged against `goal`.
std::vector<Cell> CellsOf(std::vector<InputFile> files, double goal);

}  // namespace baton
