#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/goodput/results/record.h"
#include "tests/goodput/search/capacity_search.h"

namespace baton {

// What a search left behind: every load it ran, whole. How it stands in a file: README.md.

struct SearchedLoad {
  ProbePlan plan;
  RunResult run;
};

struct SearchedMode {
  std::string name;      // disaggregated, colocated, auto, or as the user named an endpoint
  std::string endpoint;  // host:port
  std::vector<SearchedLoad> loads;  // in the order they ran
  bool finished = false;            // the search ended by itself
  bool confirmed = false;           // by fresh seeds below the capacity and above it
  std::vector<std::string> notes;
};

struct SearchResult {
  std::string tool_version;
  std::string started_at;                   // RFC 3339, UTC
  std::map<std::string, std::string> spec;  // flags as given
  double goal = 0.9;                        // attainment
  bool partial = false;                     // stopped, or out of time, before it ended
  std::vector<std::string> remarks;         // why it is partial, and what else a reader should know
  std::vector<SearchedMode> modes;
};

// Whether each measured request was good, in order of arrival.
std::vector<uint8_t> GoodOnes(const RunResult& run);
// The loads of a mode that count: those that ran to their end.
std::vector<Probe> ProbesOf(const SearchedMode& mode);
// The rates between which fresh seeds have confirmed a capacity: each by all its confirmations.
struct ConfirmedRates {
  double met = 0, missed = 0;
  bool Hold(const Capacity& capacity) const {
    return capacity.where == Capacity::Where::kWithin && capacity.rate >= met &&
           capacity.rate <= missed;
  }
};
// Nothing where the search did not say so, or where its loads do not show it.
std::optional<ConfirmedRates> ConfirmedRatesOf(const SearchedMode& mode, double goal);
// Of all modes together, so that ratios are paired.
Capacities CapacitiesOf(const SearchResult& search);

inline constexpr int kSearchFileVersion = 1;
// With capacities and ratios beside the loads, for people and scripts; they are not read back.
nlohmann::ordered_json SearchToJson(const SearchResult& search);
// InvalidArgument names the key and what is wrong with it.
absl::StatusOr<SearchResult> SearchFromJson(const nlohmann::ordered_json& json);

}  // namespace baton
