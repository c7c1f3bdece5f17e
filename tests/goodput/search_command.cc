#include "tests/goodput/search_command.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "tests/goodput/load/load.h"
#include "tests/goodput/load/machine_watch.h"
#include "tests/goodput/load/openai_connection.h"
#include "tests/goodput/load/progress_line.h"
#include "tests/goodput/load/schedule.h"
#include "tests/goodput/load/server_connection.h"
#include "tests/goodput/load/unloaded.h"
#include "tests/goodput/load_flags.h"
#include "tests/goodput/report/cell.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/results/slo_file.h"
#include "tests/goodput/search/compared_modes.h"
#include "tests/goodput/search/compared_search.h"
#include "tests/goodput/search/search_result.h"
#include "tests/goodput/slo_folder.h"
#include "tests/goodput/stop_on_signal.h"

ABSL_DECLARE_FLAG(std::string, out);
ABSL_DECLARE_FLAG(std::string, slo);
ABSL_DECLARE_FLAG(std::string, title);
ABSL_DECLARE_FLAG(double, attainment);
ABSL_FLAG(std::string, compare, "",
          "search: modes to search one after the other, such as disaggregated,colocated,auto; an "
          "entry NAME=HOST:PORT has its own endpoint and may have any name, and one with "
          "NAME=http://HOST:PORT is a server with OpenAI's API, as for --openai");
ABSL_FLAG(absl::Duration, max_probe, absl::ZeroDuration(),
          "search: max time of all loads at one rate together while the result is undecided, from "
          "--duration to 720h; 0: four times --duration");
ABSL_FLAG(double, resolution, 0.03,
          "search: width, relative to the rate, at which the interval around the capacity is "
          "narrow enough, 0.005 to 0.5");
ABSL_FLAG(double, min_rate, 0.01,
          "search: min rate to try, in requests per second, 0.0001 to --max-rate");
ABSL_FLAG(double, max_rate, 1000,
          "search: max rate to try, in requests per second, up to 10000; less if a load would have "
          "more than a million requests");
ABSL_FLAG(uint32_t, min_requests, 50,
          "search: min requests in a measurement window, which is made longer for them, up to "
          "100000; 0: windows keep their length");
ABSL_FLAG(absl::Duration, time_budget, absl::InfiniteDuration(),
          "search: max time of the whole search; no load begins that would end later, and the "
          "results so far are written, marked as partial");
ABSL_FLAG(
    double, steady, 0,
    "search: repeats a load if a single request before or after it takes longer than at first by "
    "more than this share, 0.05 to 1, for machines that others use too; 0: no such check");

namespace baton {
namespace {

// Max number of times that one load runs because the machine was slow before or after it.
constexpr int kMaxRepeats = 5;
// Max number of latency measurements while a load waits for a steady machine.
constexpr int kMaxWaiting = 100;
constexpr uint64_t kMaxSeeds = 100;  // Max seeds that are tried until a window has arrivals.
constexpr double kMaxMinRequests = 1e5;
constexpr absl::Duration kLongestProbe = absl::Hours(720);  // Max length of a load.

// The settings of a search, from the command line and from the files that it names.
struct SearchPlan {
  LoadSpec spec;
  SearchOptions options;
  std::vector<ComparedSide> sides;
  SloFile slo;
  absl::Duration budget;
  double steady = 0;
};

absl::Status CheckOptions(const SearchOptions& options) {
  const auto refuse = [](const char* flag, double value, const char* range) {
    return absl::InvalidArgumentError(absl::StrCat(flag, "=", value, " is not ", range));
  };
  if (!(options.goal >= 0.01 && options.goal <= 0.9999))
    return refuse("--attainment", options.goal, "0.01 to 0.9999");
  if (!(options.resolution >= 0.005 && options.resolution <= 0.5))
    return refuse("--resolution", options.resolution, "0.005 to 0.5");
  if (!(options.min_rate >= 0.0001 && options.min_rate <= options.max_rate &&
        options.max_rate <= 10000)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min-rate=", options.min_rate, " and --max-rate=", options.max_rate,
                     ": both take 0.0001 to 10000, and --min-rate must not be the larger one"));
  }
  if (!(options.first_rate >= options.min_rate && options.first_rate <= options.max_rate))
    return refuse("--rate", options.first_rate,
                  "between --min-rate and --max-rate; the search begins there");
  if (options.min_requests > kMaxMinRequests) {
    return absl::InvalidArgumentError(absl::StrFormat("--min-requests=%.0f is not 0 to %.0f",
                                                      options.min_requests, kMaxMinRequests));
  }
  return absl::OkStatus();
}

// Returns --max-probe, or four times `duration` if the flag is 0.
absl::StatusOr<absl::Duration> LongestProbe(absl::Duration duration) {
  const absl::Duration longest = absl::GetFlag(FLAGS_max_probe);
  if (longest == absl::ZeroDuration()) return 4 * duration;
  if (longest >= duration && longest <= kLongestProbe) return longest;
  return absl::InvalidArgumentError(
      absl::StrCat("--max-probe=", absl::FormatDuration(longest), " is not --duration (",
                   absl::FormatDuration(duration), ") to 720h, nor 0"));
}

// Returns the highest rate at which every load stays below the max number of requests. The count
// includes warm-up and tail, with a margin for random arrivals. The warm-up depends on `slo` if its
// TTFT target is an absolute time.
double HighestPossibleRate(const LoadSpec& spec, const SloFile& slo, const SearchOptions& options) {
  LoadSpec warmed = spec;
  SloTargets targets;
  if (slo.ttft.has_value() && !slo.ttft->is_multiple) targets.ttft_s = slo.ttft->value;
  SetTargets(targets, &warmed);
  const double seconds = absl::ToDoubleSeconds(warmed.warmup) +
                         std::max(options.probe_s, options.longest_s / 2) +
                         (spec.tail ? absl::ToDoubleSeconds(spec.request_timeout) : 0);
  return 0.99 * Schedule::kMaxRequests / seconds;
}

// Limits the highest rate before the search begins. Otherwise a load could turn out to be too large
// only after other loads had run for hours.
absl::Status LimitHighestRate(const LoadSpec& spec, const SloFile& slo, SearchOptions* options) {
  const double max = HighestPossibleRate(spec, slo, *options);
  if (options->max_rate <= max) return absl::OkStatus();
  const std::string why = absl::StrFormat(
      "loads of more than %.4g requests/s would have more than %d requests, warm-up and tail "
      "included",
      max, static_cast<int>(Schedule::kMaxRequests));
  if (FlagGiven("max_rate") || options->first_rate > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagGiven("max_rate") ? "--max-rate=" : "--rate=",
                     FlagGiven("max_rate") ? options->max_rate : options->first_rate, ": ", why,
                     ": set a lower rate, or shorter loads"));
  }
  std::fprintf(stderr, "the search goes no higher: %s\n", why.c_str());
  options->max_rate = max;
  return absl::OkStatus();
}

// Changes the seed until the window has arrivals. On-off arrivals and low rates may leave a window
// empty, and such a load would say nothing. Every mode gets the same seed.
absl::Status FindArrivals(LoadSpec* spec) {
  const uint64_t first = spec->seed;
  absl::Status status = CheckLoad(*spec);
  for (uint64_t tries = 1; tries < kMaxSeeds && absl::IsOutOfRange(status); ++tries) {
    spec->seed = first + (tries << 32);
    status = CheckLoad(*spec);
  }
  return status;
}

// Checks the first load. --min-requests may make it longer than --duration.
absl::Status CheckFirstLoad(LoadSpec spec, const SearchOptions& options) {
  const double window_s = options.min_requests / options.first_rate;
  if (window_s <= options.probe_s) return FindArrivals(&spec);
  spec.duration = absl::Seconds(window_s);
  const absl::Status status = FindArrivals(&spec);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrFormat(
      "--min-requests=%.0f needs a window of %s at --rate=%g: %s", options.min_requests,
      absl::FormatDuration(spec.duration), options.first_rate, status.message()));
}

// Returns InvalidArgument if requests to `side` would go to a URL that can't be used, or would ask
// a URL for a mode.
absl::Status CheckOpenAiSide(const ComparedSide& side) {
  if (!IsOpenAiEndpoint(side.endpoint)) return absl::OkStatus();
  if (const auto url = ParseOpenAiUrl(side.endpoint); !url.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare: '", side.name, "': ", url.status().message()));
  }
  if (side.mode.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--compare: '", side.name, "' is a mode, and ", side.endpoint,
                   " takes none over HTTP; give the entry another name: NAME=", side.endpoint));
}

bool AnyOpenAi(const std::vector<ComparedSide>& sides) {
  return std::any_of(sides.begin(), sides.end(),
                     [](const ComparedSide& side) { return IsOpenAiEndpoint(side.endpoint); });
}

absl::StatusOr<SearchPlan> MakeSearchPlan() {
  ASSIGN_OR_RETURN(LoadSpec spec, LoadSpecFromFlags());
  SearchPlan plan{.spec = std::move(spec)};
  const double probe_s = absl::ToDoubleSeconds(plan.spec.duration);
  ASSIGN_OR_RETURN(const absl::Duration longest, LongestProbe(plan.spec.duration));
  plan.options = {.goal = absl::GetFlag(FLAGS_attainment),
                  .first_rate = plan.spec.workload.arrivals.rate,
                  .min_rate = absl::GetFlag(FLAGS_min_rate),
                  .max_rate = absl::GetFlag(FLAGS_max_rate),
                  .resolution = absl::GetFlag(FLAGS_resolution),
                  .probe_s = probe_s,
                  .longest_s = absl::ToDoubleSeconds(longest),
                  .min_requests = static_cast<double>(absl::GetFlag(FLAGS_min_requests)),
                  .seed = plan.spec.seed};
  if (!FlagGiven("rate"))
    return absl::InvalidArgumentError(
        "--rate is needed, the rate at which the search begins, such as --rate=5");
  RETURN_IF_ERROR(CheckOptions(plan.options));
  plan.budget = absl::GetFlag(FLAGS_time_budget);
  if (plan.budget <= absl::ZeroDuration())
    return absl::InvalidArgumentError("--time-budget is not above 0");
  plan.steady = absl::GetFlag(FLAGS_steady);
  if (plan.steady != 0 && !(plan.steady >= 0.05 && plan.steady <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--steady=", plan.steady, " is not 0.05 to 1, nor 0"));
  }
  const std::string slo = absl::GetFlag(FLAGS_slo);
  if (slo.empty())
    return absl::InvalidArgumentError(
        "search needs --slo=NAME, such as chat (`slos` lists them), or --slo=FILE: without targets "
        "no rate is too high");
  ASSIGN_OR_RETURN(SloFile read, ReadSloFromFlag());
  plan.slo = std::move(read);
  RETURN_IF_ERROR(LimitHighestRate(plan.spec, plan.slo, &plan.options));
  if (const std::string compare = absl::GetFlag(FLAGS_compare); !compare.empty()) {
    if (FlagGiven("mode"))
      return absl::InvalidArgumentError(
          "--mode and --compare can't be used together; give one of them");
    ASSIGN_OR_RETURN(std::vector<ComparedSide> sides, ParseComparedSides(compare));
    plan.sides = std::move(sides);
  } else {
    plan.sides = {
        {.name = plan.spec.mode.empty() ? "server" : plan.spec.mode, .mode = plan.spec.mode}};
  }
  for (ComparedSide& side : plan.sides) {
    if (side.endpoint.empty()) side.endpoint = plan.spec.endpoint;
    RETURN_IF_ERROR(CheckOpenAiSide(side));
  }
  if (FlagGiven("openai_model") && !AnyOpenAi(plan.sides))
    return absl::InvalidArgumentError("--openai-model has no meaning without a URL to ask");
  for (const char* flag : {"slo", "compare", "attainment", "max_probe", "resolution", "min_rate",
                           "max_rate", "min_requests", "steady", "time_budget", "title"}) {
    if (FlagGiven(flag)) plan.spec.given[flag] = absl::FindCommandLineFlag(flag)->CurrentValue();
  }
  RETURN_IF_ERROR(CheckFirstLoad(plan.spec, plan.options));
  if (const std::string out = absl::GetFlag(FLAGS_out); out.empty()) {
    return absl::InvalidArgumentError("search needs --out=FILE: hours of loads should not be lost");
  } else
    RETURN_IF_ERROR(CheckWritable(out));
  return plan;
}

// Returns the load for a step of the search. Every load has its own prompts, so that no prefix
// cache holds the prompts of an earlier load.
LoadSpec SpecOf(const SearchPlan& plan, const ComparedSearch::Step& step, uint64_t loads_before) {
  LoadSpec spec = plan.spec;
  spec.endpoint = plan.sides[step.mode].endpoint;
  spec.mode = plan.sides[step.mode].mode;
  spec.workload.arrivals.rate = step.plan.rate;
  spec.seed = step.plan.seed;
  spec.duration = absl::Seconds(step.plan.window_s);
  spec.prompt_salt = plan.spec.prompt_salt + loads_before + 1;
  // An error is ignored here: running the load reports it again.
  FindArrivals(&spec).IgnoreError();
  return spec;
}

// Measures the latency of single requests to `side`, one of the compared modes.
absl::StatusOr<UnloadedLatency> MeasureSide(const SearchPlan& plan, size_t side, StopFlag* stop) {
  LoadSpec spec = plan.spec;
  spec.endpoint = plan.sides[side].endpoint;
  spec.mode = plan.sides[side].mode;
  return MeasureUnloaded(spec, stop);
}

std::string MinutesText(double seconds) {
  return seconds < 120 ? absl::StrFormat("%.0f s", seconds)
                       : absl::StrFormat("%.0f min", seconds / 60);
}

// Forecasts how long the rest of the search takes. Besides its window, a load takes about 1.2 times
// its warm-up: the warm-up itself, and the requests that still run after the window.
Interval ForecastSeconds(const SearchPlan& plan, const ComparedSearch& search) {
  const double beside = 1.2 * absl::ToDoubleSeconds(plan.spec.warmup);
  const Interval windows = search.WindowsLeft(), loads = search.LoadsLeft();
  return {windows.low + beside * loads.low, windows.high + beside * loads.high};
}

void PrintForecast(const SearchPlan& plan, const ComparedSearch& search) {
  const Interval left = ForecastSeconds(plan, search);
  std::fprintf(stderr, "search of %d mode%s: about %s to %s", static_cast<int>(plan.sides.size()),
               plan.sides.size() == 1 ? "" : "s", MinutesText(left.low).c_str(),
               MinutesText(left.high).c_str());
  if (plan.budget < absl::InfiniteDuration()) {
    std::fprintf(stderr, ", at most %s (--time-budget)",
                 MinutesText(absl::ToDoubleSeconds(plan.budget)).c_str());
  }
  std::fputs("\n", stderr);
}

// Runs one load for `side`, one of the compared modes. If `watch` is not null, repeats the load
// until the machine was as fast before and after it as at the beginning of the search. Repeats it
// at most kMaxRepeats times and not after the time `end`. Returns nothing if the time ran out
// during the wait for a steady machine.
absl::StatusOr<std::optional<RunResult>> RunSteadily(const LoadSpec& spec, size_t side,
                                                     const std::string& what, absl::Time end,
                                                     MachineWatch* watch, StopFlag* stop) {
  const auto in_time = [&] { return SteadyNow() + spec.warmup + spec.duration <= end; };
  for (int tries = 1;; ++tries) {
    bool steady = true;
    if (watch != nullptr) {
      ASSIGN_OR_RETURN(bool waited, watch->WaitUntilSteady(side, kMaxWaiting, in_time));
      steady = waited;
      if (!in_time()) return std::nullopt;
    }
    absl::StatusOr<RunResult> run;
    {
      ProgressLine line(stderr, what);
      run = RunLoad(spec, stop, [&](const RunProgress& progress) { line.Show(progress); });
    }
    RETURN_IF_ERROR(run.status());
    if (run->partial || stop->stopped() || watch == nullptr) return *std::move(run);
    ASSIGN_OR_RETURN(bool still, watch->StillSteady(side));
    if (steady && still) return *std::move(run);
    if (tries == kMaxRepeats || !in_time()) {
      run->remarks.push_back("the machine was slower than at first before or after this load");
      return *std::move(run);
    }
    std::fprintf(stderr, "%s: the machine was slow, once more\n", what.c_str());
  }
}

// Runs loads until the search has ended, the time is out or `stop` is set; the result says which.
// If a load can't run, the search ends with the load's status, which also goes into the result.
absl::Status RunSearch(const SearchPlan& plan, const std::optional<UnloadedLatency>& unloaded,
                       StopFlag* stop, SearchResult* result) {
  ComparedSearch search(plan.sides.size(), plan.options);
  MachineWatch watch(plan.sides.size(), plan.steady,
                     [&](size_t side) { return MeasureSide(plan, side, stop); });
  if (plan.steady > 0) {
    if (absl::Status status = watch.Begin(); !status.ok()) {
      result->partial = true;
      result->remarks.push_back(absl::StrCat("partial: ", status.message()));
      return status;
    }
  }
  PrintForecast(plan, search);
  const absl::Time end = SteadyNow() + plan.budget;
  uint64_t loads = 0;
  absl::Status failed;
  while (search.Next()) {
    const ComparedSearch::Step step = *search.Next();
    const auto out_of_time = [&] {
      result->remarks.push_back(
          absl::StrCat("partial: --time-budget was used up after ", loads, " loads"));
    };
    const double needed = step.plan.window_s + absl::ToDoubleSeconds(plan.spec.warmup);
    if (SteadyNow() + absl::Seconds(needed) > end) {
      out_of_time();
      break;
    }
    SearchedMode& mode = result->modes[step.mode];
    const std::string what = absl::StrFormat("%s %.4g/s (%s)", mode.name, step.plan.rate,
                                             PurposeName(step.plan.purpose));
    absl::StatusOr<std::optional<RunResult>> ran = RunSteadily(
        SpecOf(plan, step, loads), step.mode, what, end, plan.steady > 0 ? &watch : nullptr, stop);
    if (!ran.ok()) {
      failed = ran.status();
      result->remarks.push_back(
          absl::StrCat("partial: a load could not be run: ", failed.message()));
      break;
    }
    std::optional<RunResult> run = *std::move(ran);
    if (!run) {
      out_of_time();
      break;
    }
    run->unloaded = unloaded;
    ++loads;
    const bool stopped = run->partial || stop->stopped();
    mode.loads.push_back({step.plan, *std::move(run)});
    if (stopped) {
      result->remarks.push_back(absl::StrCat("partial: stopped in load ", loads));
      break;
    }
    const std::vector<uint8_t> good = GoodOnes(mode.loads.back().run);
    std::fprintf(stderr, "%s: attainment %s of %zu\n", what.c_str(),
                 ShareText(ShareOf(good)).c_str(), good.size());
    search.Add(good);
  }
  if (std::string remark = watch.Remark(); !remark.empty()) result->remarks.push_back(remark);
  result->partial = search.Next().has_value();
  for (size_t i = 0; i < plan.sides.size(); ++i) {
    result->modes[i].finished = search.search(i).finished();
    result->modes[i].confirmed = search.search(i).confirmed();
    result->modes[i].notes = search.search(i).Notes();
  }
  return failed;
}

int Search(const std::vector<std::string>&) {
  absl::StatusOr<SearchPlan> plan = MakeSearchPlan();
  if (!plan.ok()) RefuseToStart(plan.status().message());
  StopFlag* const stop = StopOnSignal();

  std::optional<UnloadedLatency> unloaded;
  if (plan->slo.IsRelative()) {
    // If --steady is set, uses the fastest of three measurements, so that a slow minute of the
    // machine does not decide the targets.
    for (int rounds = plan->steady > 0 ? 3 : 1; rounds > 0; --rounds) {
      const absl::StatusOr<UnloadedLatency> measured = MeasureSide(*plan, 0, stop);
      if (!measured.ok()) return Fail(measured.status());
      if (!unloaded || WholeRequest(*measured) < WholeRequest(*unloaded)) unloaded = *measured;
    }
  }
  const absl::StatusOr<SloTargets> targets = plan->slo.Resolve(unloaded);
  if (!targets.ok()) return Fail(targets.status());
  SetTargets(*targets, &plan->spec);

  SearchResult result{
      .tool_version = std::string(kVersion),
      .started_at = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()),
      .spec = plan->spec.given,
      .goal = plan->options.goal};
  for (const ComparedSide& side : plan->sides)
    result.modes.push_back({.name = side.name, .endpoint = side.endpoint});
  const absl::Status failed = RunSearch(*plan, unloaded, stop, &result);
  const absl::Status written =
      WriteWhole(absl::GetFlag(FLAGS_out),
                 absl::StrCat(SearchToJson(result).dump(
                                  -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                              "\n"));
  if (!written.ok()) return Fail(written);
  if (!failed.ok()) return Fail(failed);
  for (const std::string& remark : result.remarks) {
    std::printf("%s%s\n", absl::StartsWith(remark, "partial: ") ? "PARTIAL: " : "", remark.c_str());
  }
  const bool partial = result.partial;
  std::vector<InputFile> files(1);
  files[0].searches.push_back(std::move(result));
  bool invalid = false;
  for (const Cell& cell : CellsOf(std::move(files), plan->options.goal)) {
    for (const std::string& sentence : VerdictSentences(cell))
      std::printf("%s\n", sentence.c_str());
    for (const CellMode& mode : cell.modes) {
      std::printf("  %s: %s\n", mode.name.c_str(), ConfirmationText(mode).c_str());
      for (const std::string& note : mode.notes)
        std::printf("  %s: %s\n", mode.name.c_str(), note.c_str());
      for (const MeasuredLoad& load : mode.loads) invalid = invalid || !load.run.invalid.empty();
    }
  }
  if (partial) return kExitInterrupted;
  return invalid ? kExitInvalid : 0;
}

}  // namespace

Command SearchCommand() {
  std::vector<std::string> flags = LoadFlagNames();
  flags.insert(flags.end(),
               {"slo", "out", "attainment", "compare", "max_probe", "resolution", "min_rate",
                "max_rate", "min_requests", "steady", "time_budget", "title"});
  // A search does not have the flag --requests: only time ends a window.
  flags.erase(std::remove(flags.begin(), flags.end(), "requests"), flags.end());
  std::vector<FlagGroup> groups = {
      {"Goal of the search", "slo attainment compare"},
      {"Limits of the search",
       "min-rate max-rate resolution min-requests max-probe time-budget steady"},
      {"Results", "out title"}};
  for (FlagGroup& group : LoadFlagGroups()) groups.push_back(std::move(group));
  return {.name = "search",
          .usage =
              "baton-goodput search --rate=R --slo=NAME --out=FILE [--compare=disaggregated,"
              "colocated,auto] ...:\nbegins at rate R and finds the highest rate at which enough "
              "requests meet the targets.",
          .flags = flags,
          .min_words = 0,
          .max_words = 0,
          .run = Search,
          .groups = groups};
}

}  // namespace baton
