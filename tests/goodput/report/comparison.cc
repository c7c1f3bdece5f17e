#include "tests/goodput/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/results/verdict.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;
using Value = std::function<double(const RequestRecord&, const SloTargets& of_its_load)>;
using Statistic = std::function<double(std::vector<double>*)>;
constexpr int kResamples = 400;

// Returns `value` of each measured request of the load, in order of arrival.
std::vector<double> ValuesOf(const MeasuredLoad& load, const Value& value) {
  std::vector<double> values;
  for (const RequestRecord& record : load.run.records) {
    if (record.measured) values.push_back(value(record, load.run.targets));
  }
  return values;
}

std::vector<double> Resampled(const std::vector<double>& values, size_t block, uint64_t seed) {
  Draws draws(seed);
  std::vector<double> drawn;
  while (drawn.size() < values.size()) {
    const size_t begin = draws.Below(values.size());
    for (size_t i = 0; i < block && drawn.size() < values.size(); ++i)
      drawn.push_back(values[(begin + i) % values.size()]);
  }
  return drawn;
}

// Returns the block length for a bootstrap of `values`: the number of successive values that are
// correlated. BlockSample estimates this length from yes/no outcomes. So each value is replaced by
// one outcome: yes if the value is at least the median. If the median is the smallest value, all
// outcomes would be yes; then only values above the median are yes.
size_t BlockOf(const std::vector<double>& values) {
  const double median = Percentile(values, 0.5);
  std::vector<uint8_t> above;
  const double min = *std::min_element(values.begin(), values.end());
  for (const double value : values)
    above.push_back(median > min ? value >= median : value > median);
  return BlockSample(above).block();
}

// Returns the ratio of a statistic of the loads `a` and `b`. If both loads have the same arrivals,
// the bootstrap resamples the same requests of both.
ComparedFigure FigureOf(std::string name, Unit unit, bool more_is_better, const MeasuredLoad& a,
                        const MeasuredLoad& b, const Value& value, const Statistic& statistic,
                        double scale_a = 1, double scale_b = 1) {
  ComparedFigure figure{.name = std::move(name), .unit = unit, .more_is_better = more_is_better};
  std::vector<double> values_a = ValuesOf(a, value), values_b = ValuesOf(b, value);
  const std::vector<double> kept_a = values_a, kept_b = values_b;
  if (!kept_a.empty()) figure.a = statistic(&values_a) * scale_a;
  if (!kept_b.empty()) figure.b = statistic(&values_b) * scale_b;
  if (!(figure.a > 0 && figure.b > 0)) return figure;
  const bool paired = a.run.seed == b.run.seed && kept_a.size() == kept_b.size();
  const size_t block = std::max(BlockOf(kept_a), BlockOf(kept_b));
  std::vector<double> ratios;
  for (int i = 0; i < kResamples; ++i) {
    std::vector<double> one = Resampled(kept_a, block, 2 * i);
    std::vector<double> other = Resampled(kept_b, block, paired ? 2 * i : 2 * i + 1);
    const double below = statistic(&one) * scale_a;
    if (below > 0) ratios.push_back(statistic(&other) * scale_b / below);
  }
  figure.ratio = {figure.b / figure.a, MiddleOf(std::move(ratios))};
  return figure;
}

double Mean(std::vector<double>* values) {
  double sum = 0;
  for (const double value : *values) sum += value;
  return sum / static_cast<double>(values->size());
}

// Returns the quantile over completed requests only. All other requests have an infinite value, by
// which they are recognised.
Statistic QuantileOfCompleted(double share) {
  return [share](std::vector<double>* values) {
    values->erase(std::remove_if(values->begin(), values->end(),
                                 [](double value) { return !std::isfinite(value); }),
                  values->end());
    return Percentile(*values, share);
  };
}

// Returns the rate asked for, not the offered rate. The number of requests that a window happened
// to hold is random, and not a merit of the server.
double RateOf(const MeasuredLoad& load) {
  return load.run.rate > 0 ? load.run.rate : load.verdict.offered_rate;
}

std::vector<ComparedFigure> LoadFigures(const MeasuredLoad& a, const MeasuredLoad& b) {
  std::vector<ComparedFigure> figures;
  const auto is_good = [](const RequestRecord& record, const SloTargets& targets) {
    return Judge(record, targets).good ? 1.0 : 0.0;
  };
  const auto is_strict = [](const RequestRecord& record, const SloTargets& targets) {
    return Judge(record, targets).strict ? 1.0 : 0.0;
  };
  figures.push_back(FigureOf("goodput, requests/s", Unit::kNumber, true, a, b, is_good, Mean,
                             RateOf(a), RateOf(b)));
  figures.push_back(FigureOf("attainment", Unit::kPercent, true, a, b, is_good, Mean));
  figures.push_back(FigureOf("strict attainment", Unit::kPercent, true, a, b, is_strict, Mean));
  struct Latency {
    const char* name;
    double (*of)(const RequestRecord&);
    bool needs_pace;
  };
  for (const Latency& latency :
       {Latency{"TTFT", Ttft, false}, Latency{"TPOT", Tpot, true}, Latency{"W10", W10, true},
        Latency{"end to end", EndToEnd, false}}) {
    const auto value = [&latency](const RequestRecord& record, const SloTargets&) {
      if (record.outcome != Outcome::kCompleted) return static_cast<double>(INFINITY);
      if (latency.needs_pace && record.token_s.size() < 2) return static_cast<double>(INFINITY);
      return latency.of(record);
    };
    for (const auto& [name, share] :
         {std::pair("P50", 0.5), std::pair("P90", 0.9), std::pair("P99", 0.99)}) {
      figures.push_back(FigureOf(absl::StrCat(latency.name, " ", name), Unit::kSeconds, false, a, b,
                                 value, QuantileOfCompleted(share)));
    }
  }
  return figures;
}

std::vector<Probe> ProbesOf(const CellMode& mode) {
  std::vector<Probe> probes;
  for (const MeasuredLoad& load : mode.loads) {
    if (!load.run.partial && load.run.rate > 0)
      probes.push_back({load.run.rate, load.run.seed, load.good});
  }
  return probes;
}

// Returns, for example, "at least 8" if the capacity is only a bound. Else returns an empty text.
std::string BoundText(const Capacity& capacity) {
  return capacity.where == Capacity::Where::kWithin ? "" : CapacityText(capacity);
}

ComparedMode CompareModes(const Cell& cell_a, const CellMode& a, const CellMode& b) {
  ComparedMode compared{.cell = cell_a.title, .mode_a = a.name, .mode_b = b.name};
  std::optional<ComparedFigure> capacity;
  if (a.loads.size() > 1 && b.loads.size() > 1) {
    const Capacities capacities({ProbesOf(a), ProbesOf(b)}, cell_a.goal);
    if (capacities.of(0).rate > 0 && capacities.of(1).rate > 0) {
      capacity = ComparedFigure{
          .name = absl::StrCat("capacity at ", FormattedValue(cell_a.goal, Unit::kPercent),
                               ", requests/s"),
          .a = capacities.of(0).rate,
          .b = capacities.of(1).rate,
          .ratio = capacities.RatioOf(1, 0),
          .text_a = BoundText(capacities.of(0)),
          .text_b = BoundText(capacities.of(1))};
    }
  }
  const bool judges = capacity && !capacity->ratio.IsUnknown();
  if (judges) compared.figures.push_back(*capacity);
  const MeasuredLoad* load_a = LoadNear(a, cell_a.ReferenceRate());
  // The ratio of the capacities is unknown. So the figures are compared at the highest rate at
  // which both `a` and `b` have loads, and goodput decides.
  if (capacity && !judges) {
    const MeasuredLoad* common = nullptr;
    for (const MeasuredLoad& load : a.loads) {
      if (LoadNear(b, load.run.rate)->run.rate == load.run.rate)
        common = LoadNear(a, load.run.rate);
    }
    if (common == nullptr) {
      compared.figures.push_back(*capacity);
      capacity.reset();
    } else {
      load_a = common;
    }
  }
  if (load_a == nullptr) return compared;
  const MeasuredLoad* load_b = LoadNear(b, load_a->run.rate);
  if (load_b == nullptr) return compared;
  compared.rate_a = load_a->run.rate;
  compared.rate_b = load_b->run.rate;
  for (ComparedFigure& figure : LoadFigures(*load_a, *load_b))
    compared.figures.push_back(std::move(figure));
  if (capacity && !judges) compared.figures.push_back(*capacity);
  return compared;
}

// Adds "WHAT: a / b" to `differences` if `a` and `b` differ.
void Differ(const char* what, const std::string& a, const std::string& b,
            std::vector<std::string>* differences) {
  if (a != b) differences->push_back(absl::StrCat(what, ": ", a, " / ", b));
}

std::string FingerprintsOf(const Cell& cell) {
  std::set<std::string> all;
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) all.insert(load.run.server.fingerprint);
  }
  return absl::StrJoin(all, ", ");
}

void CompareTerms(const Cell& a, const Cell& b, std::vector<std::string>* differences) {
  // Targets that are multiples of a measured latency differ a little from run to run. Such
  // differences are listed, too.
  Differ("targets differ", absl::StrCat(a.targets.name, ", ", TargetsSentence(a.targets)),
         absl::StrCat(b.targets.name, ", ", TargetsSentence(b.targets)), differences);
  Differ("workload differs", a.workload, b.workload, differences);
  Differ("model differs", a.model, b.model, differences);
  Differ("fingerprint of the model differs", FingerprintsOf(a), FingerprintsOf(b), differences);
  const auto goal = [](const Cell& cell) { return FormattedValue(cell.goal, Unit::kPercent); };
  Differ("goal differs, both are judged by the first", goal(a), goal(b), differences);
}

void FindDoubts(const char* which, const Cell& cell, std::vector<std::string>* doubts) {
  if (cell.partial) doubts->push_back(absl::StrCat("the ", which, " is partial: ", cell.title));
  for (const CellMode& mode : cell.modes) {
    for (const MeasuredLoad& load : mode.loads) {
      if (load.run.invalid.empty()) continue;
      doubts->push_back(absl::StrCat("the ", which, " is invalid: ", mode.name, " at ",
                                     FormattedValue(load.run.rate, Unit::kNumber),
                                     "/s: ", absl::StrJoin(load.run.invalid, "; ")));
    }
  }
}

}  // namespace

std::string ComparedFigure::Verdict() const {
  if (!(a > 0) || (!more_is_better && !(b > 0))) return "";
  if (ratio.IsUnknown()) return "unknown";
  const bool above = ratio.interval.low > 1, below = ratio.interval.high < 1;
  if (!above && !below) return "no difference shown";
  return above == more_is_better ? "better" : "worse";
}

bool ComparedMode::FellBeyondNoise() const {
  return !figures.empty() && figures[0].Verdict() == "worse";
}

bool Comparison::FellBeyondNoise() const {
  return lost_modes || std::any_of(modes.begin(), modes.end(),
                                   [](const ComparedMode& mode) { return mode.FellBeyondNoise(); });
}

Comparison Compare(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  Comparison comparison;
  std::vector<bool> used(b.size());
  for (const Cell& cell_a : a) {
    const Cell* cell_b = nullptr;
    for (size_t i = 0; i < b.size() && cell_b == nullptr; ++i) {
      const bool same = b[i].title == cell_a.title && b[i].goal == cell_a.goal;
      if (used[i] || (!same && !(a.size() == 1 && b.size() == 1))) continue;
      used[i] = true;
      cell_b = &b[i];
    }
    if (cell_b == nullptr) {
      comparison.unmatched.push_back(absl::StrCat("only the first has: ", cell_a.title));
      comparison.lost_modes = true;
      continue;
    }
    CompareTerms(cell_a, *cell_b, &comparison.differences);
    FindDoubts("first", cell_a, &comparison.doubts);
    FindDoubts("second", *cell_b, &comparison.doubts);
    std::vector<bool> used_modes(cell_b->modes.size());
    for (const CellMode& mode_a : cell_a.modes) {
      bool found = false;
      for (size_t i = 0; i < cell_b->modes.size() && !found; ++i) {
        const bool alone = cell_a.modes.size() == 1 && cell_b->modes.size() == 1;
        if (used_modes[i] || (cell_b->modes[i].name != mode_a.name && !alone)) continue;
        used_modes[i] = found = true;
        comparison.modes.push_back(CompareModes(cell_a, mode_a, cell_b->modes[i]));
        const ComparedMode& mode = comparison.modes.back();
        if (std::abs(mode.rate_a - mode.rate_b) > 0.05 * mode.rate_a)
          Differ("rates of the loads differ",
                 absl::StrCat(FormattedValue(mode.rate_a, Unit::kNumber), "/s"),
                 absl::StrCat(FormattedValue(mode.rate_b, Unit::kNumber), "/s"),
                 &comparison.differences);
      }
      if (found) continue;
      comparison.unmatched.push_back(
          absl::StrCat("only the first has: ", mode_a.name, " in ", cell_a.title));
      comparison.lost_modes = true;
    }
    for (size_t i = 0; i < used_modes.size(); ++i) {
      if (!used_modes[i])
        comparison.unmatched.push_back(
            absl::StrCat("only the second has: ", cell_b->modes[i].name, " in ", cell_b->title));
    }
  }
  for (size_t i = 0; i < b.size(); ++i) {
    if (!used[i]) comparison.unmatched.push_back(absl::StrCat("only the second has: ", b[i].title));
  }
  return comparison;
}

std::string ComparisonText(const Comparison& comparison) {
  std::string text;
  for (const ComparedMode& mode : comparison.modes) {
    absl::StrAppend(
        &text, mode.cell, "\n",
        mode.mode_a == mode.mode_b ? mode.mode_a : absl::StrCat(mode.mode_a, " and ", mode.mode_b));
    absl::StrAppend(&text, ", latencies at ", FormattedValue(mode.rate_a, Unit::kNumber), " and ",
                    FormattedValue(mode.rate_b, Unit::kNumber), " requests/s\n");
    absl::StrAppendFormat(&text, "  %-32s %14s %14s   %s\n", "", "first", "second",
                          "second / first (95 %)");
    for (const ComparedFigure& figure : mode.figures) {
      const std::string verdict = figure.Verdict();
      const auto number = [&](const std::string& told, double value) {
        return told.empty() ? FormattedValue(value, figure.unit) : told;
      };
      std::string ratio = figure.b > 0 ? RatioText(figure.ratio) : "0";
      if (ratio != verdict) absl::StrAppend(&ratio, " ", verdict);
      absl::StrAppendFormat(&text, "  %-32s %14s %14s   %s\n", figure.name,
                            number(figure.text_a, figure.a), number(figure.text_b, figure.b),
                            verdict.empty() ? "-" : ratio);
    }
  }
  for (const std::string& what : comparison.differences) absl::StrAppend(&text, what, "\n");
  for (const std::string& what : comparison.doubts) absl::StrAppend(&text, what, "\n");
  for (const std::string& what : comparison.unmatched) absl::StrAppend(&text, what, "\n");
  return text;
}

json ComparisonJson(const Comparison& comparison) {
  json modes = json::array();
  for (const ComparedMode& mode : comparison.modes) {
    json figures = json::array();
    for (const ComparedFigure& figure : mode.figures) {
      figures.push_back({{"name", figure.name},
                         {"first", figure.a},
                         {"second", figure.b},
                         {"first_bound", figure.text_a},
                         {"second_bound", figure.text_b},
                         {"ratio", figure.ratio.value},
                         {"low", figure.ratio.interval.low},
                         {"high", figure.ratio.interval.high},
                         {"verdict", figure.Verdict()}});
    }
    modes.push_back({{"cell", mode.cell},
                     {"first_mode", mode.mode_a},
                     {"second_mode", mode.mode_b},
                     {"first_rate", mode.rate_a},
                     {"second_rate", mode.rate_b},
                     {"fell_beyond_noise", mode.FellBeyondNoise()},
                     {"figures", std::move(figures)}});
  }
  return {{"baton_goodput_diff", 1},           {"modes", std::move(modes)},
          {"unmatched", comparison.unmatched}, {"differences", comparison.differences},
          {"doubts", comparison.doubts},       {"fell_beyond_noise", comparison.FellBeyondNoise()}};
}

}  // namespace baton
