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

// One load with what was computed of it.
struct MeasuredLoad {
  explicit MeasuredLoad(RunResult result);

  RunResult run;
  std::string purpose;  // of the search that ran it; empty: a run of its own
  Verdict verdict;
  // Measured requests in order of arrival: whether they met both targets, and each alone.
  std::vector<uint8_t> good, ttft_met, tpot_met;
  Share attainment, ttft_share, tpot_share;
};

// One mode in a cell.
struct CellMode {
  std::string name;
  std::vector<MeasuredLoad> loads;  // by rate, then in the order they ran
  bool searched = false, finished = false;
  std::optional<ConfirmedRates> confirmed;  // of a search, holding the capacity below
  std::vector<std::string> notes;
  Capacity capacity;
};

// What is measured under equal terms: one workload, one model, one pair of targets, one goal. Its
// modes are what is compared.
struct Cell {
  std::string title;     // targets and workload, short
  std::string workload;  // as its flags tell it
  std::string model;
  SloTargets targets;
  double goal = 0.9;
  std::vector<CellMode> modes;
  std::vector<std::vector<Ratio>> ratios;  // [mode][base], of capacities
  std::vector<std::string> remarks;
  std::map<std::string, std::string> spec;  // of its first load
  bool partial = false;

  // The mode of the highest capacity, upper bounds coming last; -1 where none is known.
  int Best() const;
  // Whether no other's bound leaves room for a higher one.
  bool BestIsShown() const;
  // The rate at which modes are shown side by side: that of the loads which a search ran for this,
  // or else the highest capacity, or the highest rate that was measured.
  double ReferenceRate() const;
};
// The load of `mode` nearest to `rate` (in proportion); of several of one rate the one that was run
// to compare modes, or else the longest, one that is whole before any that is partial. Null for
// none.
const MeasuredLoad* LoadNear(const CellMode& mode, double rate);

// A file that a report is made of.
struct InputFile {
  std::string path;
  std::vector<RunResult> runs;  // one of the two has one entry
  std::vector<SearchResult> searches;
};
// Reads a run or a search. The message names the file and the place in it.
absl::StatusOr<InputFile> ReadInputFile(const std::string& path);

// InvalidArgument names a search that looked for another attainment than `goal`.
absl::Status CheckGoal(const InputFile& file, double goal);

// Sorts loads into cells, in the order of the files. Runs of their own are judged against `goal`.
std::vector<Cell> CellsOf(std::vector<InputFile> files, double goal);

}  // namespace baton
