#include "tests/goodput/load/schedule.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/load/arrivals.h"
#include "tests/goodput/load/prompt_maker.h"
#include "tests/goodput/traces/length_distribution.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Pair;

constexpr uint32_t kContext = 4096;
const char kAzure[] = BATON_SOURCE_DIR "/tests/goodput/testdata/azure_conv_head.csv";
const char kMooncake[] =
    BATON_SOURCE_DIR "/tests/goodput/testdata/mooncake_conversation_head.jsonl";

std::string Why(const absl::Status& status) { return std::string(status.message()); }

LoadSpec SmallLoad() {
  LoadSpec spec;
  spec.workload = {.arrivals = {.rate = 20},
                   .prompt_tokens = "uniform:16,256",
                   .output_tokens = "lognormal:50,0.5"};
  spec.warmup = absl::Seconds(5);
  spec.duration = absl::Seconds(20);
  spec.request_timeout = absl::Seconds(10);
  return spec;
}

uint64_t SeedThatBeginsAt(size_t row, size_t rows) {
  uint64_t seed = 1;
  while (FirstRow(seed, rows) != row) ++seed;
  return seed;
}

std::vector<double> Gaps(const ArrivalSpec& spec, int count, const Trace* trace = nullptr,
                         size_t first_row = 0, const Arrivals::Parts& parts = {}) {
  Arrivals arrivals(spec, trace,
                    trace == nullptr ? 7 : SeedThatBeginsAt(first_row, trace->rows.size()), parts);
  std::vector<double> gaps;
  double before = 0;
  for (int i = 0; i < count; ++i) {
    const double at = arrivals.Next();
    gaps.push_back(at - before);
    before = at;
  }
  return gaps;
}

struct Moments {
  double mean = 0, cv = 0;
};
Moments MomentsOf(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / static_cast<double>(values.size())) / mean};
}

TEST(ArrivalsTest, GapsHaveTheMeanAndTheVariationThatWereAskedFor) {
  // The standard error of the mean of 40,000 gaps is 0.5 % times their coefficient of variation.
  const Moments poisson = MomentsOf(Gaps({.rate = 50}, 40'000));
  EXPECT_NEAR(poisson.mean, 0.02, 0.02 * 0.02);
  EXPECT_NEAR(poisson.cv, 1, 0.03);
  for (const double cv : {0.5, 2.0, 4.0}) {
    const Moments gamma =
        MomentsOf(Gaps({.kind = ArrivalKind::kGamma, .rate = 50, .cv = cv}, 40'000));
    EXPECT_NEAR(gamma.mean, 0.02, 0.02 * 0.02 * cv);
    EXPECT_NEAR(gamma.cv, cv, 0.06 * cv);
  }
  const Moments uniform = MomentsOf(Gaps({.kind = ArrivalKind::kUniform, .rate = 50}, 1000));
  EXPECT_NEAR(uniform.mean, 0.02, 1e-9);
  EXPECT_NEAR(uniform.cv, 0, 1e-6);
}

TEST(ArrivalsTest, OnOffKeepsTheRateAndFallsSilent) {
  const ArrivalSpec spec{.kind = ArrivalKind::kOnOff, .rate = 50, .on_s = 1, .off_s = 3};
  const std::vector<double> gaps = Gaps(spec, 200'000);  // About 1,000 periods.
  EXPECT_NEAR(MomentsOf(gaps).mean, 0.02, 0.02 * 0.12);
  int silences = 0;
  // Counts the silences: gaps of more than 0.2 s, which is 40 times the mean gap of an on period.
  for (const double gap : gaps) silences += gap > 0.2;
  EXPECT_THAT(silences, AllOf(Ge(700), Le(1200)));
}

TEST(ArrivalsTest, OtherRatesOfOneSeedAreTheSameArrivalsStretched) {
  for (const ArrivalKind kind : {ArrivalKind::kPoisson, ArrivalKind::kGamma}) {
    const std::vector<double> slow = Gaps({.kind = kind, .rate = 5, .cv = 2}, 100);
    const std::vector<double> fast = Gaps({.kind = kind, .rate = 50, .cv = 2}, 100);
    for (size_t i = 0; i < slow.size(); ++i) EXPECT_NEAR(slow[i], 10 * fast[i], 1e-9);
  }
}

TEST(ArrivalsTest, OnOffFallsSilentAtTheSameTimesWhateverTheRate) {
  // Returns one value for each second: true if no request arrives in it. In an on period, 20 or 200
  // requests arrive per second, so hardly any of its seconds is true.
  const auto silent = [](double rate) {
    Arrivals arrivals({.kind = ArrivalKind::kOnOff, .rate = rate, .on_s = 8, .off_s = 8}, nullptr,
                      7, {});
    std::vector<bool> seconds(400, true);
    for (double at = arrivals.Next(); at < 400; at = arrivals.Next())
      seconds[static_cast<size_t>(at)] = false;
    return seconds;
  };
  const std::vector<bool> slow = silent(10), fast = silent(100);
  int same = 0;
  for (size_t i = 0; i < slow.size(); ++i) same += slow[i] == fast[i];
  // A few seconds may differ. When an on period (the time in which requests arrive) begins or ends,
  // a second may have an arrival at 100 requests/s but none at 10.
  EXPECT_GE(same, 390);
}

TEST(ArrivalsTest, ATraceIsReplayedAndStretched) {
  Trace trace;
  for (const double at : {0.0, 1.0, 1.0, 1.0, 4.0}) trace.rows.push_back({.at_s = at});
  EXPECT_DOUBLE_EQ(trace.Period(), 5);
  EXPECT_DOUBLE_EQ(trace.Rate(), 1);
  EXPECT_THAT(Gaps({.kind = ArrivalKind::kTrace, .rate = 0}, 7, &trace),
              ElementsAre(0, 1, 0, 0, 3, 1, 1));
  EXPECT_THAT(Gaps({.kind = ArrivalKind::kTrace, .rate = 0}, 7, &trace, 3),
              ElementsAre(0, 3, 1, 1, 0, 0, 3));
  EXPECT_THAT(Gaps({.kind = ArrivalKind::kTrace, .rate = 2}, 5, &trace, 0, {.window_s = 2.5}),
              ElementsAre(0, 0.5, 0, 0, 1.5));
  // Checks `spread`: requests stay in order, each between its own time and the next time in the
  // trace, and no two arrive at the same time.
  const std::vector<double> spread =
      Gaps({.kind = ArrivalKind::kTrace, .rate = 0, .spread = true}, 5, &trace);
  for (size_t i = 1; i < spread.size(); ++i) EXPECT_GT(spread[i], 0);
  EXPECT_THAT(spread[0] + spread[1], AllOf(Ge(1), Le(4)));
}

TEST(ArrivalsTest, ImpossibleRatesAreRefused) {
  for (const double rate : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e9}) {
    EXPECT_THAT(Why(CheckArrivals({.rate = rate})), HasSubstr("requests per second")) << rate;
  }
  EXPECT_TRUE(CheckArrivals({.kind = ArrivalKind::kTrace, .rate = 0}).ok());
  EXPECT_FALSE(CheckArrivals({.kind = ArrivalKind::kTrace, .rate = -1}).ok());
  EXPECT_FALSE(CheckArrivals({.kind = ArrivalKind::kGamma, .cv = 0}).ok());
  EXPECT_FALSE(CheckArrivals({.kind = ArrivalKind::kOnOff, .on_s = 0}).ok());
}

TEST(LengthDistributionTest, DrawsWhatItsLawSays) {
  const ScratchFolder folder;
  const std::string table = folder.Write("t", "# share tokens\n0 10\n0.5 20\n1 120\n");
  const auto mean_of = [](const std::string& text, uint32_t min, uint32_t max) {
    const LengthDistribution lengths = LengthDistribution::Parse(text).value();
    RandomStream random(3, RandomStream::kLengths);
    double sum = 0;
    for (int i = 0; i < 20'000; ++i) {
      const uint32_t length = lengths.Draw(&random);
      EXPECT_GE(length, min);
      EXPECT_LE(length, max);
      sum += length;
    }
    return sum / 20'000;
  };
  EXPECT_EQ(mean_of("128", 128, 128), 128);
  EXPECT_NEAR(mean_of("uniform:1,9", 1, 9), 5, 0.1);
  EXPECT_NEAR(mean_of("lognormal:100,0.5", 1, 5000), 100 * std::exp(0.125), 2);
  EXPECT_NEAR(mean_of("quantiles:" + table, 10, 120), 0.5 * 15 + 0.5 * 70, 1);
}

TEST(LengthDistributionTest, NamesWhatIsNoLength) {
  for (const char* text : {"", "0", "-5", "1.5", "x", "uniform:9,1", "uniform:1", "uniform:1,nan",
                           "lognormal:100", "lognormal:100,-1", "lognormal:0,1", "nan"}) {
    EXPECT_THAT(Why(LengthDistribution::Parse(text).status()), HasSubstr("is not a length"))
        << text;
  }
  const ScratchFolder folder;
  const auto why = [&](const char* table) {
    return Why(LengthDistribution::Parse("quantiles:" + folder.Write("t", table)).status());
  };
  EXPECT_THAT(why("0 1\nx\n"), HasSubstr("t:2: a line is SHARE TOKENS"));
  EXPECT_THAT(why("0 1\n2 5\n"), HasSubstr("t:2: share 2 is not from 0 to 1"));
  EXPECT_THAT(why("0 9\n1 5\n"), HasSubstr("t:2: shares must rise"));
  EXPECT_THAT(why("0 9\n0.5 10\n"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(Why(LengthDistribution::Parse("quantiles:/none").status()), HasSubstr("/none"));
}

bool operator==(const PlannedRequest& a, const PlannedRequest& b) {
  return a.at_s == b.at_s && a.prompt_tokens == b.prompt_tokens &&
         a.output_tokens == b.output_tokens && a.row == b.row && a.pass == b.pass;
}

TEST(ScheduleTest, TheSameSeedIsTheSameScheduleToTheBit) {
  LoadSpec spec = SmallLoad();
  const Schedule one = MakeSchedule(spec, kContext).value();
  const Schedule two = MakeSchedule(spec, kContext).value();
  ASSERT_EQ(one.requests.size(), two.requests.size());
  for (size_t i = 0; i < one.requests.size(); ++i) EXPECT_TRUE(one.requests[i] == two.requests[i]);
  // The expected values must never change: if they do, every recorded load changes.
  EXPECT_EQ(one.requests.size(), 673u);
  EXPECT_EQ(one.requests[0].at_s, 0.160786);
  EXPECT_EQ(one.requests[0].prompt_tokens, 111u);
  spec.seed = 2;
  EXPECT_NE(MakeSchedule(spec, kContext)->requests[0].at_s, one.requests[0].at_s);
}

TEST(ScheduleTest, LengthsDoNotDependOnTheRate) {
  LoadSpec spec = SmallLoad();
  const Schedule slow = MakeSchedule(spec, kContext).value();
  spec.workload.arrivals.rate = 40;
  const Schedule fast = MakeSchedule(spec, kContext).value();
  for (size_t i = 0; i < slow.requests.size(); ++i) {
    EXPECT_EQ(slow.requests[i].prompt_tokens, fast.requests[i].prompt_tokens);
    EXPECT_EQ(slow.requests[i].output_tokens, fast.requests[i].output_tokens);
  }
}

TEST(ScheduleTest, WarmUpIsCutAndATailFollows) {
  LoadSpec spec = SmallLoad();
  const Schedule schedule = MakeSchedule(spec, kContext).value();
  EXPECT_EQ(schedule.window_begin_s, 5);
  EXPECT_EQ(schedule.window_end_s, 25);
  const auto& requests = schedule.requests;
  EXPECT_LT(requests[schedule.first_measured - 1].at_s, 5);
  EXPECT_GE(requests[schedule.first_measured].at_s, 5);
  EXPECT_LT(requests[schedule.end_measured - 1].at_s, 25);
  EXPECT_GE(requests[schedule.end_measured].at_s, 25);
  // After the window, requests (the tail) go on for the request timeout of 10 s, because a measured
  // request may take so long.
  EXPECT_GT(requests.back().at_s, 34);
  spec.tail = false;
  EXPECT_EQ(MakeSchedule(spec, kContext)->requests.size(), schedule.end_measured);
  spec.max_requests = 10;
  const Schedule ten = MakeSchedule(spec, kContext).value();
  EXPECT_EQ(ten.end_measured - ten.first_measured, 10u);
  EXPECT_EQ(ten.window_end_s, requests[schedule.first_measured + 10].at_s);
}

TEST(ScheduleTest, LengthsAreCutToTheContext) {
  LoadSpec spec = SmallLoad();
  spec.workload.prompt_tokens = "300";
  spec.workload.output_tokens = "200";
  const Schedule schedule = MakeSchedule(spec, 256).value();
  EXPECT_EQ(schedule.requests[0].output_tokens, 128u);
  EXPECT_EQ(schedule.requests[0].prompt_tokens, 128u);
  // Compares all requests except those of the tail, which may never be sent.
  const std::string sent = absl::StrCat(schedule.end_measured);
  EXPECT_THAT(schedule.remarks,
              ElementsAre(sent + " prompts and " + sent +
                          " answers were cut to the model's context of 256 tokens"));
}

TEST(ScheduleTest, TracesGiveTimesAndLengths) {
  LoadSpec spec;
  spec.workload = {.arrivals = {.kind = ArrivalKind::kTrace, .rate = 0}, .trace = kAzure};
  spec.warmup = absl::ZeroDuration();
  spec.duration = absl::Seconds(4.6);
  spec.tail = false;
  spec.seed = SeedThatBeginsAt(0, 5);
  Schedule schedule = MakeSchedule(spec, 65536).value();
  ASSERT_EQ(schedule.requests.size(), 3u);
  EXPECT_NEAR(schedule.requests[1].at_s, 4.314579, 1e-9);
  EXPECT_EQ(schedule.requests[0].prompt_tokens, 374u);
  EXPECT_EQ(schedule.requests[2].output_tokens, 55u);
  spec.workload.prompt_scale = 0.5;
  spec.workload.output_scale = 2;
  // The load has more requests than the trace has rows, so the trace begins again.
  spec.workload.arrivals.rate = 1000;
  schedule = MakeSchedule(spec, 65536).value();
  EXPECT_EQ(schedule.requests[0].prompt_tokens, 187u);
  EXPECT_EQ(schedule.requests[0].output_tokens, 88u);
  EXPECT_EQ(schedule.requests[5].pass, 1u);
  ASSERT_EQ(schedule.remarks.size(), 1u);
  EXPECT_THAT(schedule.remarks[0], HasSubstr("begun again"));
}

TEST(ScheduleTest, AFreshSeedBeginsATraceOrAPromptFileElsewhere) {
  const ScratchFolder folder;
  std::string rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n", texts;
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&rows, "2023-11-16 18:15:", i < 10 ? "0" : "", i, ".5,", 100 + i, ",5\n");
    absl::StrAppend(&texts, "text ", i, "\n");
  }
  LoadSpec trace = SmallLoad();
  trace.workload = {.arrivals = {.kind = ArrivalKind::kTrace, .rate = 0},
                    .trace = folder.Write("trace", rows)};
  LoadSpec prompts = SmallLoad();
  prompts.workload.prompt_tokens = "";
  prompts.workload.prompts = folder.Write("prompts", texts);
  for (LoadSpec spec : {trace, prompts}) {
    std::set<uint32_t> first_rows;
    for (spec.seed = 1; spec.seed <= 20; ++spec.seed) {
      const Schedule schedule = MakeSchedule(spec, kContext).value();
      const auto& requests = schedule.requests;
      EXPECT_EQ(requests[0].at_s == 0, spec.workload.prompts.empty());
      first_rows.insert(requests[0].row);
      for (size_t i = 1; i < requests.size(); ++i) {
        // After the last row of the trace comes the first.
        EXPECT_EQ(requests[i].row, (requests[i - 1].row + 1) % 60);
        EXPECT_EQ(requests[i].pass, i / 60);
      }
      EXPECT_EQ(MakeSchedule(spec, kContext)->requests[0].row, requests[0].row);
    }
    EXPECT_GT(first_rows.size(), 10u);
  }
}

// Returns a trace of 2,000 s with ten requests a second, except for a silence of 20 minutes. Many
// requests share a time.
std::string UnevenTrace() {
  std::string rows;
  for (int i = 0; i < 8000; ++i) {
    const int second = i / 20 * 2;  // 20 requests have the same time, every other second.
    absl::StrAppend(&rows, "{\"timestamp\": ", 1000 * (second < 400 ? second : second + 1200),
                    ", \"input_length\": 9, \"output_length\": 5}\n");
  }
  return rows;
}

TEST(ScheduleTest, WarmUpAndWindowOfATraceHaveTheRateThatWasAskedFor) {
  const ScratchFolder folder;
  LoadSpec spec;
  spec.workload = {.arrivals = {.kind = ArrivalKind::kTrace},
                   .trace = folder.Write("t", UnevenTrace())};
  // The first row of a load is before, within or after the silence of the trace, or near its end.
  for (const size_t first_row : {0u, 3700u, 3950u, 3999u, 4100u, 7900u}) {
    spec.seed = SeedThatBeginsAt(first_row, 8000);
    for (const double rate : {0.5, 1.5, 4.0, 20.0}) {
      for (const bool spread : {false, true}) {
        spec.workload.arrivals.rate = rate;
        spec.workload.arrivals.spread = spread;
        const absl::StatusOr<Schedule> schedule = MakeSchedule(spec, kContext);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        EXPECT_EQ(schedule->first_measured, rate * 30);
        EXPECT_EQ(schedule->end_measured - schedule->first_measured, rate * 60);
        EXPECT_THAT(schedule->remarks, IsEmpty());
        double before_s = 0;
        for (const PlannedRequest& request : schedule->requests) {
          EXPECT_GE(request.at_s, before_s);
          before_s = request.at_s;
        }
      }
    }
  }
}

TEST(ScheduleTest, AWindowOfSoManyRequestsLastsUntilALaterOne) {
  const ScratchFolder folder;
  std::string rows;
  for (const int at_ms : {0, 0, 0, 0, 3000, 3000, 3000, 6000, 8000})
    absl::StrAppend(&rows, "{\"timestamp\": ", at_ms,
                    ", \"input_length\": 9, \"output_length\": 5}\n");
  LoadSpec spec;
  spec.workload = {.arrivals = {.kind = ArrivalKind::kTrace, .rate = 0},
                   .trace = folder.Write("t", rows)};
  spec.warmup = absl::ZeroDuration();
  spec.seed = SeedThatBeginsAt(0, 9);
  const auto window = [&](uint32_t requests) {
    spec.max_requests = requests;
    const Schedule schedule = MakeSchedule(spec, kContext).value();
    EXPECT_EQ(schedule.requests[schedule.end_measured].at_s, schedule.window_end_s);
    return std::make_pair(schedule.end_measured - schedule.first_measured, schedule.window_end_s);
  };
  EXPECT_THAT(window(1), Pair(4, 3));
  EXPECT_THAT(window(4), Pair(4, 3));
  EXPECT_THAT(window(5), Pair(7, 6));
  EXPECT_THAT(window(8), Pair(8, 8));
  // If a rate is given, the seed, which decides at which row of the trace the load begins, has no
  // influence. The window has the number of requests asked for, and lasts this number divided by
  // the rate.
  spec.warmup = absl::Seconds(30);
  spec.workload.arrivals.rate = 4;
  for (spec.seed = 1; spec.seed < 20; ++spec.seed) {
    for (const uint32_t requests : {1u, 5u, 8u})
      EXPECT_THAT(window(requests), Pair(requests, 30 + requests / 4.0));
  }
}

TEST(ScheduleTest, AWindowFarFromTheRateThatWasAskedForIsRemarked) {
  LoadSpec spec = SmallLoad();
  spec.workload.arrivals = {.kind = ArrivalKind::kOnOff, .rate = 20, .on_s = 60, .off_s = 60};
  // Tries seeds until the window lies within a single on-period, in which the rate is twice the
  // mean.
  for (spec.seed = 1;; ++spec.seed) {
    const absl::StatusOr<Schedule> schedule = MakeSchedule(spec, kContext);
    if (!schedule.ok() || schedule->end_measured - schedule->first_measured < 700) continue;
    EXPECT_THAT(schedule->remarks,
                ElementsAre(HasSubstr("requests/s, not the 20 that were asked")));
    break;
  }
}

TEST(ScheduleTest, NamesWhatCanNotBe) {
  const auto why = [](const std::function<void(LoadSpec*)>& spoil) {
    LoadSpec spec = SmallLoad();
    spoil(&spec);
    return Why(MakeSchedule(spec, kContext).status());
  };
  EXPECT_EQ(why([](LoadSpec*) {}), "");
  EXPECT_THAT(why([](LoadSpec* spec) { spec->workload.arrivals.rate = 0; }), HasSubstr("the rate"));
  EXPECT_THAT(why([](LoadSpec* spec) {
                spec->workload.arrivals.rate = 9000;
                spec->duration = absl::Hours(1);
              }),
              HasSubstr("more than 1000000 requests"));
  EXPECT_THAT(why([](LoadSpec* spec) { spec->duration = absl::Microseconds(1); }),
              HasSubstr("no request falls into the window"));
  EXPECT_THAT(why([](LoadSpec* spec) { spec->duration = absl::InfiniteDuration(); }),
              HasSubstr("30 days"));
  EXPECT_THAT(why([](LoadSpec* spec) { spec->workload.prompt_tokens = ""; }),
              HasSubstr("length of prompts"));
  EXPECT_THAT(why([](LoadSpec* spec) { spec->workload.output_tokens = ""; }),
              HasSubstr("length of answers"));
  EXPECT_THAT(why([](LoadSpec* spec) { spec->workload.prompt_scale = NAN; }), HasSubstr("scaled"));
  EXPECT_THAT(why([](LoadSpec* spec) { spec->workload.trace = "/none"; }), HasSubstr("/none"));
  EXPECT_THAT(why([](LoadSpec* spec) {
                spec->workload.trace = kAzure;
                spec->workload.prompt_scale = 0.5;
              }),
              HasSubstr("--prompt-scale=0.5 scales the trace's lengths, which "
                        "--prompt-tokens=uniform:16,256 replaces"));
  EXPECT_THAT(why([](LoadSpec* spec) {
                spec->workload.trace = kAzure;
                spec->workload.output_scale = 2;
              }),
              HasSubstr("--output-scale=2 scales"));
}

TEST(PromptMakerTest, EqualBlockIdsBecomeEqualTokenRuns) {
  LoadSpec spec;
  spec.workload = {.arrivals = {.kind = ArrivalKind::kTrace, .rate = 100},
                   .trace = kMooncake,
                   .prompt_scale = 0.125};  // Blocks of 512 tokens become 64 tokens.
  spec.warmup = absl::ZeroDuration();
  spec.duration = absl::Seconds(1);
  const Schedule schedule = MakeSchedule(spec, 65536).value();
  ASSERT_EQ(schedule.block_tokens, 64u);
  const std::vector<int32_t> ordinary = {5, 7, 11, 13, 17};
  const PromptMaker maker(spec, schedule, ordinary, "r");
  const auto prompt = [&](uint32_t index) {
    const v1::GenerateRequest request = maker.Make(index);
    return std::vector<int32_t>(request.token_ids().ids().begin(), request.token_ids().ids().end());
  };
  const std::vector<int32_t> first = prompt(0), second = prompt(1), again = prompt(8);
  EXPECT_EQ(first.size(), schedule.requests[0].prompt_tokens);
  // Rows 0 and 1 of the trace share their first block, so their prompts begin with the same 64
  // tokens.
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 64, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 64, first.begin() + 128, second.begin() + 64));
  // The second pass through the trace shares no tokens with the first.
  EXPECT_FALSE(std::equal(first.begin(), first.begin() + 64, again.begin()));
  for (const int32_t token : prompt(3)) EXPECT_THAT(ordinary, testing::Contains(token));
}

TEST(PromptMakerTest, FingerprintsAreOfPromptAndOptionsAlone) {
  LoadSpec spec = SmallLoad();
  const Schedule schedule = MakeSchedule(spec, kContext).value();
  const std::vector<int32_t> ordinary = {5, 7, 11};
  const auto fingerprint = [&](const LoadSpec& load, uint32_t index) {
    return PromptMaker::Fingerprint(PromptMaker(load, schedule, ordinary, "r").Make(index));
  };
  const uint64_t first = fingerprint(spec, 0);
  EXPECT_EQ(PromptMaker::Fingerprint(PromptMaker(spec, schedule, ordinary, "other").Make(0)),
            first);
  EXPECT_NE(fingerprint(spec, 1), first);
  LoadSpec other = spec;
  other.prompt_salt = 1;
  EXPECT_NE(fingerprint(other, 0), first);
  other = spec;
  other.temperature = 1;
  EXPECT_NE(fingerprint(other, 0), first);
  other = spec;
  other.mode = "colocated";  // The mode does not change the tokens.
  EXPECT_EQ(fingerprint(other, 0), first);
}

TEST(PromptMakerTest, LengthsAreForcedUnlessAskedOtherwise) {
  LoadSpec spec = SmallLoad();
  const Schedule schedule = MakeSchedule(spec, kContext).value();
  const std::vector<int32_t> ordinary = {5};
  v1::SamplingParams sampling = PromptMaker(spec, schedule, ordinary, "r").Make(0).sampling();
  EXPECT_EQ(sampling.max_tokens(), schedule.requests[0].output_tokens);
  EXPECT_EQ(sampling.min_tokens(), schedule.requests[0].output_tokens);
  EXPECT_TRUE(sampling.ignore_eos());
  spec.workload.forced_length = false;
  sampling = PromptMaker(spec, schedule, ordinary, "r").Make(0).sampling();
  EXPECT_FALSE(sampling.has_min_tokens());
  EXPECT_FALSE(sampling.has_ignore_eos());
}

}  // namespace
}  // namespace baton
