#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "tests/goodput/results/record.h"
#include "tests/goodput/search/capacity_search.h"

namespace baton {

// Data that a search leaves behind: all its loads, with every record. tests/goodput/README.md
// describes the file.

struct SearchedLoad {
  ProbePlan plan;
  RunResult run;
};

struct SearchedMode {
  std::string name;      // disaggregated, colocated, auto, or the user's name for an endpoint.
  std::string endpoint;  // HOST:PORT.
  std::vector<SearchedLoad> loads;  // Loads in the order in which they ran.
  bool finished = false;  // True if the search ended by itself, not by a stop or the time limit.
  // True if fresh seeds confirmed the capacity at rates below and above it.
  bool confirmed = false;
  std::vector<std::string> notes;
};

struct SearchResult {
  std::string tool_version;
  std::string started_at;                   // RFC 3339, in UTC.
  std::map<std::string, std::string> spec;  // Flags as they were given.
  double goal = 0.9;                        // Attainment that a rate must reach.
  bool partial = false;  // True if the search was stopped, or ran out of time, before its end.
  // Reasons why the search is partial, and other notes for the reader.
  std::vector<std::string> remarks;
  std::vector<SearchedMode> modes;
};

// Returns 1 for each measured request that was good and 0 for the others, in order of arrival.
std::vector<uint8_t> GoodOnes(const RunResult& run);
// Returns the complete loads of a mode as probes. Partial loads do not count.
std::vector<Probe> ProbesOf(const SearchedMode& mode);
// Rates between which fresh seeds have confirmed a capacity. Each rate is judged by all its
// confirming loads together.
struct ConfirmedRates {
  double met = 0, missed = 0;
  bool Hold(const Capacity& capacity) const {
    return capacity.where == Capacity::Where::kWithin && capacity.rate >= met &&
           capacity.rate <= missed;
  }
};
// Returns nothing if the search was not confirmed, or if its loads do not show the confirmation.
std::optional<ConfirmedRates> ConfirmedRatesOf(const SearchedMode& mode, double goal);
// Computes the capacities of all modes together. Each resample then takes the same blocks of
// requests in all modes, so ratios of modes can be computed per resample.
Capacities CapacitiesOf(const SearchResult& search);

inline constexpr int kSearchFileVersion = 1;
// Converts a search to JSON. Besides the loads, the JSON contains capacities and ratios for people
// and scripts, which SearchFromJson ignores.
nlohmann::ordered_json SearchToJson(const SearchResult& search);
// Reads a search from JSON. An InvalidArgument names the key and its error.
absl::StatusOr<SearchResult> SearchFromJson(const nlohmann::ordered_json& json);

}  // namespace baton
