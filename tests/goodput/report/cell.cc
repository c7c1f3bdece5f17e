#include "tests/goodput/report/cell.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "tests/goodput/plot/axis.h"
#include "tests/goodput/results/json_text.h"
#include "tests/goodput/results/run_file.h"

namespace baton {
namespace {

constexpr char kServer[] = "server";  // Name of the mode of runs that asked for no mode.

// Returns true for flags that define the requests of a load, and false for flags that only define
// the measurement.
bool IsOfTheWorkload(const std::string& flag) {
  static const auto* of_it = new std::set<std::string>{
      "arrivals",      "cv",           "forced_length", "off",     "on",     "output_scale",
      "output_tokens", "prompt_scale", "prompt_tokens", "prompts", "spread", "temperature",
      "trace"};
  return of_it->count(absl::StrReplaceAll(flag, {{"-", "_"}})) > 0;
}

// Returns true if `value` is the default of `flag`, so that a run with it equals a run without the
// flag.
bool IsDefault(const std::string& flag, const std::string& value,
               const std::map<std::string, std::string>& spec) {
  static const auto* defaults = new std::map<std::string, std::string>{
      {"cv", "1"},           {"forced_length", "true"}, {"off", "5s"},       {"on", "5s"},
      {"output_scale", "1"}, {"prompt_scale", "1"},     {"spread", "false"}, {"temperature", "0"}};
  if (flag == "arrivals") {
    const auto trace = spec.find("trace");
    return value == (trace == spec.end() || trace->second.empty() ? "poisson" : "trace");
  }
  const auto found = defaults->find(flag);
  return found != defaults->end() && found->second == value;
}

// Describes the workload by its flags. If `paths` is true, paths stay complete, so that files with
// the same name in two folders give two workloads.
std::string WorkloadText(const std::map<std::string, std::string>& spec, bool paths = false) {
  std::vector<std::string> parts;
  // The flags are in alphabetical order. Iterates backwards, so that the lengths of prompts come
  // before those of outputs.
  for (auto entry = spec.rbegin(); entry != spec.rend(); ++entry) {
    const auto& [flag, value] = *entry;
    if (!IsOfTheWorkload(flag) || value.empty()) continue;
    if (IsDefault(absl::StrReplaceAll(flag, {{"-", "_"}}), value, spec)) continue;
    const size_t slash = paths ? value.npos : value.rfind('/');
    parts.push_back(absl::StrCat(absl::StrReplaceAll(flag, {{"_", " "}, {"-", " "}}), " ",
                                 slash == value.npos ? value : value.substr(slash + 1)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string TargetsText(const SloTargets& targets) {
  std::vector<std::string> parts;
  if (targets.ttft_s)
    parts.push_back(absl::StrCat("TTFT ≤ ", FormattedValue(*targets.ttft_s, Unit::kSeconds)));
  if (targets.tpot_s)
    parts.push_back(absl::StrCat("TPOT ≤ ", FormattedValue(*targets.tpot_s, Unit::kSeconds)));
  if (targets.e2e_s)
    parts.push_back(absl::StrCat("end to end ≤ ", FormattedValue(*targets.e2e_s, Unit::kSeconds)));
  return parts.empty() ? "no targets" : absl::StrJoin(parts, ", ");
}

// Returns a key that is equal for all loads of one cell, which are the loads that can be compared.
std::string KeyOf(const RunResult& run, double goal) {
  return absl::StrJoin({run.server.model, run.server.fingerprint, run.targets.name,
                        TargetsText(run.targets), WorkloadText(run.spec, true), absl::StrCat(goal)},
                       "\x1f");
}

class CellBuilder {
 public:
  Cell* CellFor(const RunResult& run, double goal) {
    const std::string key = KeyOf(run, goal);
    const auto [place, is_new] = places_.try_emplace(key, cells_.size());
    if (!is_new) return &cells_[place->second];
    Cell& cell = cells_.emplace_back();
    cell.workload = WorkloadText(run.spec);
    const auto title = run.spec.find("title");
    cell.title = title != run.spec.end() && !title->second.empty()
                     ? title->second
                     : absl::StrCat(run.targets.name.empty() ? "load" : run.targets.name,
                                    cell.workload.empty() ? "" : ": ", cell.workload);
    cell.model = run.server.model;
    cell.targets = run.targets;
    cell.goal = goal;
    cell.spec = run.spec;
    return &cell;
  }

  static CellMode* ModeOf(Cell* cell, const std::string& name) {
    for (CellMode& mode : cell->modes) {
      if (mode.name == name) return &mode;
    }
    cell->modes.push_back({.name = name});
    return &cell->modes.back();
  }

  void Add(RunResult run, double goal) {
    Cell* cell = CellFor(run, goal);
    cell->partial = cell->partial || run.partial;
    const std::string name = run.mode.empty() ? kServer : run.mode;
    ModeOf(cell, name)->loads.emplace_back(std::move(run));
  }

  void Add(SearchResult search) {
    Cell* cell = nullptr;
    for (SearchedMode& searched : search.modes) {
      const std::optional<ConfirmedRates> confirmed = ConfirmedRatesOf(searched, search.goal);
      for (SearchedLoad& load : searched.loads) {
        if (cell == nullptr) cell = CellFor(load.run, search.goal);
        CellMode* mode = ModeOf(cell, searched.name);
        if (load.run.partial) continue;  // A partial load is not judged.
        mode->loads.emplace_back(std::move(load.run));
        mode->loads.back().purpose = PurposeName(load.plan.purpose);
      }
      if (searched.loads.empty()) continue;
      CellMode* mode = ModeOf(cell, searched.name);
      mode->searched = true;
      mode->finished = searched.finished;
      mode->confirmed = confirmed;
      mode->notes.insert(mode->notes.end(), searched.notes.begin(), searched.notes.end());
    }
    if (cell == nullptr) return;
    cell->partial = cell->partial || search.partial;
    cell->remarks.insert(cell->remarks.end(), search.remarks.begin(), search.remarks.end());
    for (const auto& [flag, value] : search.spec) cell->spec[flag] = value;
    const auto title = search.spec.find("title");
    if (title != search.spec.end() && !title->second.empty()) cell->title = title->second;
  }

  std::vector<Cell> Take() { return std::move(cells_); }

 private:
  std::map<std::string, size_t> places_;
  std::vector<Cell> cells_;
};

bool IsForComparison(const MeasuredLoad& load) {
  return load.purpose == PurposeName(ProbePlan::Purpose::kSameRate);
}

// Runs that asked for no mode form one mode. If they used different routers, each router becomes a
// mode of its own.
void TellServersApart(Cell* cell) {
  std::vector<CellMode> modes;
  for (CellMode& mode : cell->modes) {
    std::set<std::string> endpoints;
    for (const MeasuredLoad& load : mode.loads) endpoints.insert(load.run.server.endpoint);
    if (mode.name != kServer || mode.searched || endpoints.size() < 2) {
      modes.push_back(std::move(mode));
      continue;
    }
    for (const std::string& endpoint : endpoints) {
      modes.push_back({.name = endpoint});
      for (MeasuredLoad& load : mode.loads) {
        if (load.run.server.endpoint == endpoint) modes.back().loads.push_back(std::move(load));
      }
    }
  }
  cell->modes = std::move(modes);
}

void Finish(Cell* cell) {
  TellServersApart(cell);
  std::vector<std::vector<Probe>> probes;
  for (CellMode& mode : cell->modes) {
    std::stable_sort(
        mode.loads.begin(), mode.loads.end(),
        [](const MeasuredLoad& a, const MeasuredLoad& b) { return a.run.rate < b.run.rate; });
    std::vector<Probe>& list = probes.emplace_back();
    for (const MeasuredLoad& load : mode.loads) {
      if (!load.run.partial && load.run.rate > 0)
        list.push_back({load.run.rate, load.run.seed, load.good});
    }
  }
  const Capacities capacities(probes, cell->goal);
  cell->ratios.assign(probes.size(), std::vector<Ratio>(probes.size()));
  for (size_t i = 0; i < probes.size(); ++i) {
    CellMode& mode = cell->modes[i];
    mode.capacity = capacities.of(i);
    if (mode.confirmed && !mode.confirmed->Hold(mode.capacity)) {
      mode.notes.push_back(absl::StrFormat(
          "not confirmed: fresh seeds met %.4g and missed %.4g requests/s, but over all loads the "
          "capacity is %.4g",
          mode.confirmed->met, mode.confirmed->missed, mode.capacity.rate));
      mode.confirmed.reset();
    }
    for (size_t k = 0; k < probes.size(); ++k) {
      if (k != i) cell->ratios[i][k] = capacities.RatioOf(i, k);
    }
  }
}

}  // namespace

MeasuredLoad::MeasuredLoad(RunResult result)
    : run(std::move(result)), verdict(ComputeVerdict(run)) {
  // Without --rate a trace is replayed at its own rate, so the offered rate is used.
  if (!(run.rate > 0)) run.rate = verdict.offered_rate;
  for (const RequestRecord& record : run.records) {
    if (!record.measured) continue;
    const Judgement judgement = Judge(record, run.targets);
    good.push_back(judgement.good);
    ttft_met.push_back(judgement.ttft_met);
    tpot_met.push_back(judgement.tpot_met);
  }
  attainment = ShareOf(good);
  ttft_share = ShareOf(ttft_met);
  tpot_share = ShareOf(tpot_met);
}

int Cell::Best() const {
  using Where = Capacity::Where;
  int best = -1;
  const auto higher = [&](const Capacity& a, const Capacity& b) {
    const bool a_below = a.where == Where::kBelow, b_below = b.where == Where::kBelow;
    return a_below == b_below ? a.rate > b.rate : b_below;
  };
  for (size_t i = 0; i < modes.size(); ++i) {
    if (modes[i].capacity.where == Where::kUnknown) continue;
    if (best < 0 || higher(modes[i].capacity, modes[best].capacity)) best = static_cast<int>(i);
  }
  return best;
}

bool Cell::BestIsShown() const {
  using Where = Capacity::Where;
  const int best = Best();
  if (best < 0 || modes[best].capacity.where == Where::kBelow) return false;
  for (size_t i = 0; i < modes.size(); ++i) {
    const Capacity& other = modes[i].capacity;
    if (static_cast<int>(i) == best || other.where == Where::kUnknown) continue;
    if (other.where == Where::kAbove) return false;
    if (other.where == Where::kBelow && other.rate > modes[best].capacity.rate) return false;
  }
  return true;
}

double Cell::ReferenceRate() const {
  double highest = 0, same = 0;
  size_t rates = 0;
  for (const CellMode& mode : modes) {
    for (const MeasuredLoad& load : mode.loads) {
      rates += load.run.rate != highest;
      highest = std::max(highest, load.run.rate);
      if (IsForComparison(load)) same = std::max(same, load.run.rate);
    }
  }
  if (same > 0) return same;
  const int best = Best();
  return best >= 0 && rates > 1 ? modes[best].capacity.rate : highest;
}

const MeasuredLoad* LoadNear(const CellMode& mode, double rate) {
  const MeasuredLoad* nearest = nullptr;
  double min = INFINITY;
  const auto worth = [](const MeasuredLoad& load) {
    return std::tuple(!load.run.partial, IsForComparison(load), load.verdict.window_s);
  };
  for (const MeasuredLoad& load : mode.loads) {
    const double apart =
        load.run.rate > 0 && rate > 0 ? std::abs(std::log(load.run.rate / rate)) : 1e9;
    if (apart > min || (apart == min && worth(load) < worth(*nearest))) continue;
    min = apart;
    nearest = &load;
  }
  return nearest;
}

absl::StatusOr<InputFile> ReadInputFile(const std::string& path) {
  ASSIGN_OR_RETURN(nlohmann::ordered_json json, ReadJsonFile(path));
  InputFile input{.path = path};
  absl::Status status;
  if (json.is_object() && json.contains("baton_goodput_search")) {
    absl::StatusOr<SearchResult> search = SearchFromJson(json);
    status = search.status();
    if (search.ok()) input.searches.push_back(*std::move(search));
  } else if (json.is_object() && json.contains("baton_goodput_run")) {
    absl::StatusOr<RunResult> run = RunFromJson(json);
    status = run.status();
    if (run.ok()) input.runs.push_back(*std::move(run));
  } else if (json.is_object() && json.contains("baton_goodput_report")) {
    status = absl::InvalidArgumentError(
        "this is a report's figures; a report is made of the files of run and search");
  } else {
    status = absl::InvalidArgumentError(
        "neither a run (key baton_goodput_run) nor a search (baton_goodput_search)");
  }
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  return input;
}

absl::Status CheckGoal(const InputFile& file, double goal) {
  for (const SearchResult& search : file.searches) {
    if (search.goal == goal) continue;
    return absl::InvalidArgumentError(absl::StrCat("--attainment=", goal, ": ", file.path,
                                                   " is a search for ", search.goal,
                                                   ", and did not look elsewhere"));
  }
  return absl::OkStatus();
}

std::vector<Cell> CellsOf(std::vector<InputFile> files, double goal) {
  CellBuilder builder;
  for (InputFile& file : files) {
    for (RunResult& run : file.runs) builder.Add(std::move(run), goal);
    for (SearchResult& search : file.searches) builder.Add(std::move(search));
  }
  std::vector<Cell> cells = builder.Take();
  for (Cell& cell : cells) Finish(&cell);
  return cells;
}

}  // namespace baton
