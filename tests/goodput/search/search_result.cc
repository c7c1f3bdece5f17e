#include "tests/goodput/search/search_result.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/goodput/results/object_reader.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/results/verdict.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

constexpr ProbePlan::Purpose kPurposes[] = {
    ProbePlan::Purpose::kBracket,      ProbePlan::Purpose::kBisect,
    ProbePlan::Purpose::kLengthen,     ProbePlan::Purpose::kConfirmAt,
    ProbePlan::Purpose::kConfirmAbove, ProbePlan::Purpose::kSameRate};

json LoadJson(const SearchedLoad& load) {
  return {{"purpose", PurposeName(load.plan.purpose)},
          {"rate", load.plan.rate},
          {"window_s", load.plan.window_s},
          {"seed", load.plan.seed},
          {"run", RunToJson(load.run)}};
}

json CapacityJson(const Capacity& capacity) {
  return {{"where", WhereName(capacity.where)},
          {"rate", capacity.rate},
          {"low", capacity.interval.low},
          {"high", capacity.interval.high}};
}

absl::StatusOr<SearchedLoad> LoadFrom(ObjectReader* reader, const json& from,
                                      absl::Status* status) {
  SearchedLoad load;
  const std::string purpose = reader->String("purpose");
  bool known = false;
  for (const ProbePlan::Purpose one : kPurposes) {
    if (purpose != PurposeName(one)) continue;
    load.plan.purpose = one;
    known = true;
  }
  if (!known) reader->Refuse("purpose", absl::StrCat("'", purpose, "' is not a purpose"));
  load.plan.rate = reader->Double("rate");
  if (!(load.plan.rate > 0 && load.plan.rate < 1e9))
    reader->Refuse("rate", absl::StrCat(load.plan.rate, " is not a rate"));
  load.plan.window_s = reader->Double("window_s");
  load.plan.seed = reader->Uint64("seed");
  reader->Object("run");
  if (!status->ok()) return *status;
  absl::StatusOr<RunResult> run = RunFromJson(from.at("run"));
  if (!run.ok()) {
    reader->Refuse("run", run.status().message());
    return *status;
  }
  load.run = *std::move(run);
  return load;
}

}  // namespace

std::vector<uint8_t> GoodOnes(const RunResult& run) {
  std::vector<uint8_t> good;
  for (const RequestRecord& record : run.records) {
    if (record.measured) good.push_back(Judge(record, run.targets).good);
  }
  return good;
}

std::vector<Probe> ProbesOf(const SearchedMode& mode) {
  std::vector<Probe> probes;
  for (const SearchedLoad& load : mode.loads) {
    if (!load.run.partial) probes.push_back({load.plan.rate, load.plan.seed, GoodOnes(load.run)});
  }
  return probes;
}

std::optional<ConfirmedRates> ConfirmedRatesOf(const SearchedMode& mode, double goal) {
  if (!mode.confirmed) return std::nullopt;
  using Purpose = ProbePlan::Purpose;
  // Returns true if the loads for `purpose` met the goal, and nothing if there are none. Looks only
  // at the loads at the last such rate, and sets `*rate` to it.
  const auto confirmed = [&](Purpose purpose, double* rate) -> std::optional<bool> {
    std::vector<uint8_t> all;
    for (const SearchedLoad& load : mode.loads) {
      if (load.plan.purpose != purpose || load.run.partial) continue;
      if (load.plan.rate != *rate) all.clear();
      *rate = load.plan.rate;
      const std::vector<uint8_t> good = GoodOnes(load.run);
      all.insert(all.end(), good.begin(), good.end());
    }
    if (all.empty()) return std::nullopt;
    return ShareOf(all).value >= goal;
  };
  ConfirmedRates rates;
  const std::optional<bool> below = confirmed(Purpose::kConfirmAt, &rates.met);
  const std::optional<bool> above = confirmed(Purpose::kConfirmAbove, &rates.missed);
  if (below != true || above != false) return std::nullopt;
  return rates;
}

Capacities CapacitiesOf(const SearchResult& search) {
  std::vector<std::vector<Probe>> modes;
  for (const SearchedMode& mode : search.modes) modes.push_back(ProbesOf(mode));
  return Capacities(modes, search.goal);
}

json SearchToJson(const SearchResult& search) {
  const Capacities capacities = CapacitiesOf(search);
  json modes = json::array(), ratios = json::array();
  for (size_t i = 0; i < search.modes.size(); ++i) {
    const SearchedMode& mode = search.modes[i];
    json loads = json::array();
    for (const SearchedLoad& load : mode.loads) loads.push_back(LoadJson(load));
    const auto confirmed = ConfirmedRatesOf(mode, search.goal);
    modes.push_back({{"name", mode.name},
                     {"endpoint", mode.endpoint},
                     {"finished", mode.finished},
                     {"confirmed", confirmed && confirmed->Hold(capacities.of(i))},
                     {"notes", mode.notes},
                     {"capacity", CapacityJson(capacities.of(i))},
                     {"loads", std::move(loads)}});
    for (size_t k = 0; k < search.modes.size(); ++k) {
      if (k == i) continue;
      const Ratio ratio = capacities.RatioOf(i, k);
      ratios.push_back({{"mode", mode.name},
                        {"to", search.modes[k].name},
                        {"ratio", ratio.value},
                        {"low", ratio.interval.low},
                        {"high", ratio.interval.high}});
    }
  }
  return {{"baton_goodput_search", kSearchFileVersion},
          {"tool_version", search.tool_version},
          {"started_at", search.started_at},
          {"spec", search.spec},
          {"attainment", search.goal},
          {"partial", search.partial},
          {"remarks", search.remarks},
          {"ratios", std::move(ratios)},
          {"modes", std::move(modes)}};
}

absl::StatusOr<SearchResult> SearchFromJson(const json& all) {
  absl::Status status;
  ObjectReader reader(&all, "", &status);
  const int64_t version = reader.Int("baton_goodput_search");
  if (status.ok() && version != kSearchFileVersion) {
    return absl::InvalidArgumentError(absl::StrCat("baton_goodput_search is ", version,
                                                   "; this tool reads ", kSearchFileVersion));
  }
  SearchResult search;
  search.tool_version = reader.String("tool_version");
  search.started_at = reader.String("started_at");
  for (auto& [key, value] : reader.StringMap("spec")) search.spec.emplace(key, value);
  search.goal = reader.Double("attainment");
  if (!(search.goal > 0 && search.goal < 1))
    reader.Refuse("attainment", absl::StrCat(search.goal, " is not between 0 and 1"));
  search.partial = reader.Bool("partial");
  search.remarks = reader.Strings("remarks");
  std::vector<ObjectReader> modes = reader.Objects("modes");
  for (size_t i = 0; i < modes.size() && status.ok(); ++i) {
    SearchedMode& mode = search.modes.emplace_back();
    mode.name = modes[i].String("name");
    mode.endpoint = modes[i].String("endpoint");
    mode.finished = modes[i].Bool("finished");
    mode.confirmed = modes[i].Bool("confirmed");
    mode.notes = modes[i].Strings("notes");
    std::vector<ObjectReader> loads = modes[i].Objects("loads");
    for (size_t k = 0; k < loads.size() && status.ok(); ++k) {
      absl::StatusOr<SearchedLoad> load =
          LoadFrom(&loads[k], all.at("modes").at(i).at("loads").at(k), &status);
      if (load.ok()) mode.loads.push_back(*std::move(load));
    }
  }
  RETURN_IF_ERROR(status);
  return search;
}

}  // namespace baton
