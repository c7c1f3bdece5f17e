#include "tests/goodput/report/cell.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/scratch_folder.h"
#include "tests/goodput/report/cell_text.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/search/simulated_run.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

// Returns a load of `offered` requests, evenly spaced at `rate`. `good` of them meet both targets;
// the others miss only the TTFT target.
RunResult Load(const std::string& mode, double rate, int good, int offered, uint64_t seed = 1) {
  RunResult run;
  run.mode = mode;
  run.rate = rate;
  run.seed = seed;
  run.server.model = "demo";
  run.spec = {{"prompt_tokens", "64"}, {"duration", "9s"}, {"trace", "/some/where/conv.csv"}};
  run.targets = {.name = "chat", .ttft_s = 0.25, .tpot_s = 0.05};
  run.window_end_s = offered / rate;
  for (int i = 0; i < offered; ++i) {
    RequestRecord record;
    record.index = i;
    record.measured = true;
    record.scheduled_s = record.sent_s = i / rate;
    record.outcome = Outcome::kCompleted;
    const bool late = (i + 1) * good / offered == i * good / offered;
    record.token_s = {record.scheduled_s + (late ? 0.5 : 0.1), record.scheduled_s + 0.52};
    if (!late) record.token_s[1] = record.token_s[0] + 0.04;
    record.ended_s = record.token_s[1];
    run.records.push_back(record);
  }
  return run;
}

TEST(CellTest, LoadsOfEqualTermsAreOneCell) {
  std::vector<InputFile> files(4);
  files[0].runs = {Load("auto", 2, 100, 100)};
  files[1].runs = {Load("auto", 4, 80, 100)};
  files[2].runs = {Load("colocated", 4, 70, 100)};
  files[3].runs = {Load("auto", 2, 100, 100)};
  files[3].runs[0].targets.tpot_s = 0.1;
  const std::vector<Cell> cells = CellsOf(files, 0.9);
  ASSERT_THAT(cells, SizeIs(2));
  ASSERT_THAT(cells[0].modes, SizeIs(2));
  EXPECT_EQ(cells[0].title, "chat: trace conv.csv, prompt tokens 64");
  EXPECT_EQ(cells[0].modes[0].name, "auto");
  EXPECT_THAT(cells[0].modes[0].loads, SizeIs(2));
  EXPECT_EQ(cells[0].modes[0].capacity.where, Capacity::Where::kWithin);
  EXPECT_EQ(cells[0].modes[1].capacity.where, Capacity::Where::kBelow);
  EXPECT_EQ(cells[0].Best(), 0);
}

TEST(CellTest, WorkloadsAreToldApartByWhatTheyAre) {
  const auto cells_of = [](const std::map<std::string, std::string>& more) {
    std::vector<InputFile> files(1);
    files[0].runs = {Load("auto", 2, 100, 100), Load("auto", 4, 80, 100)};
    for (const auto& [flag, value] : more) files[0].runs[1].spec[flag] = value;
    return CellsOf(files, 0.9).size();
  };
  EXPECT_EQ(cells_of({}), 1u);
  EXPECT_EQ(cells_of({{"arrivals", "trace"}, {"cv", "1"}, {"prompt_scale", "1"}}), 1u);
  EXPECT_EQ(cells_of({{"arrivals", "poisson"}}), 2u);
  EXPECT_EQ(cells_of({{"prompt_scale", "2"}}), 2u);
  EXPECT_EQ(cells_of({{"trace", "/other/place/conv.csv"}}), 2u);
  std::vector<InputFile> files(1);
  files[0].runs = {SimulatedRun({.window_s = 5}), SimulatedRun({.seed = 2, .window_s = 5})};
  // The first run has no flag `arrivals`, and the second has its default value, poisson. So both
  // runs have the same workload and form one cell.
  files[0].runs[0].spec.erase("arrivals");
  EXPECT_THAT(CellsOf(files, 0.9), SizeIs(1));
}

TEST(CellTest, RoutersThatWereAskedForNoModeAreNotOne) {
  std::vector<InputFile> files(1);
  files[0].runs = {Load("", 2, 100, 100), Load("", 2, 80, 100), Load("", 4, 70, 100)};
  for (RunResult& run : files[0].runs) run.server.endpoint = "h:1";
  EXPECT_EQ(CellsOf(files, 0.9)[0].modes[0].name, "server");
  files[0].runs[1].server.endpoint = "h:2";
  const Cell cell = CellsOf(files, 0.9)[0];
  ASSERT_THAT(cell.modes, SizeIs(2));
  EXPECT_EQ(cell.modes[0].name, "h:1");
  EXPECT_THAT(cell.modes[0].loads, SizeIs(2));
  EXPECT_EQ(cell.modes[1].name, "h:2");
  EXPECT_THAT(cell.modes[1].loads, SizeIs(1));
}

TEST(CellTest, FiguresOfALoadAreExact) {
  const MeasuredLoad load(Load("auto", 4, 75, 100));
  EXPECT_EQ(load.attainment.value, 0.75);
  EXPECT_EQ(load.ttft_share.value, 0.75);
  EXPECT_EQ(load.tpot_share.value, 1);
  EXPECT_EQ(load.verdict.goodput, 3);
  EXPECT_THAT(load.good, SizeIs(100));
}

TEST(CellTest, TheReferenceRateIsTheBestCapacity) {
  std::vector<InputFile> files(1);
  files[0].runs = {Load("auto", 2, 100, 100), Load("auto", 4, 80, 100),
                   Load("colocated", 2, 80, 100), Load("colocated", 4, 70, 100)};
  const Cell cell = CellsOf(files, 0.9)[0];
  EXPECT_EQ(cell.ReferenceRate(), cell.modes[0].capacity.rate);
  EXPECT_EQ(LoadNear(cell.modes[0], 2.5)->run.rate, 2);
  EXPECT_EQ(LoadNear(cell.modes[0], 3.5)->run.rate, 4);
  EXPECT_EQ(LoadNear(CellMode{}, 1), nullptr);
}

TEST(CellTest, OfOneRateTheLoadThatComparesModesIsShownOrTheLongest) {
  CellMode mode;
  RunResult partial = Load("auto", 2, 190, 200, 4);
  partial.partial = true;
  for (const RunResult& run : {Load("auto", 2, 99, 100, 1), Load("auto", 2, 50, 50, 2),
                               Load("auto", 2, 10, 10, 3), partial})
    mode.loads.emplace_back(run);
  EXPECT_EQ(LoadNear(mode, 2)->run.seed, 1u);
  mode.loads[1].purpose = PurposeName(ProbePlan::Purpose::kSameRate);
  EXPECT_EQ(LoadNear(mode, 2)->run.seed, 2u);
}

TEST(CellTest, LoadsThatCompareModesDoNotMoveTheRateTheyAreShownAt) {
  SearchResult search;
  for (const char* name : {"auto", "colocated"}) {
    SearchedMode mode{.name = name};
    mode.loads = {
        {{.rate = 2}, Load(name, 2, 480, 500)},
        {{.rate = 3.02}, Load(name, 3.02, 460, 500, 2)},
        {{.rate = 4}, Load(name, 4, 300, 500, 3)},
        {{.purpose = ProbePlan::Purpose::kSameRate, .rate = 3}, Load(name, 3, 300, 400, 4)}};
    search.modes.push_back(mode);
  }
  std::vector<InputFile> files(1);
  files[0].searches = {search};
  const Cell cell = CellsOf(files, 0.9)[0];
  EXPECT_NE(cell.modes[0].capacity.rate, 3);
  EXPECT_EQ(cell.ReferenceRate(), 3);
  for (const CellMode& mode : cell.modes)
    EXPECT_EQ(LoadNear(mode, cell.ReferenceRate())->run.seed, 4u);
}

TEST(CellTest, ATraceAtItsOwnRateIsShownAtTheRateThatItOffered) {
  RunResult run = Load("auto", 4, 75, 100);
  run.rate = 0;
  std::vector<InputFile> files(1);
  files[0].runs = {run};
  const Cell cell = CellsOf(files, 0.9)[0];
  EXPECT_EQ(cell.ReferenceRate(), 4);
  EXPECT_EQ(cell.modes[0].loads[0].run.rate, 4);
}

TEST(CellTest, SaysWhoIsBetterOnlyWhenTheIntervalSaysSo) {
  std::vector<InputFile> files(1);
  files[0].runs = {Load("auto", 2, 1000, 1000), Load("auto", 4, 500, 1000),
                   Load("colocated", 2, 910, 1000), Load("colocated", 4, 300, 1000)};
  EXPECT_THAT(VerdictSentences(CellsOf(files, 0.9)[0])[0],
              AllOf(StartsWith("auto sustains "), HasSubstr(" requests/s at 90 % attainment, "),
                    testing::EndsWith(" times colocated: better.")));
  files[0].runs = {Load("auto", 2, 96, 100, 1), Load("auto", 4, 80, 100, 2),
                   Load("colocated", 2, 95, 100, 3), Load("colocated", 4, 79, 100, 4)};
  EXPECT_THAT(VerdictSentences(CellsOf(files, 0.9)[0])[0],
              testing::EndsWith(" times colocated: no difference shown."));
}

TEST(CellTest, ABoundIsNeitherBetterNorWorseNorBestThanItShows) {
  const auto cell_of = [](std::vector<RunResult> runs) {
    std::vector<InputFile> files(1);
    files[0].runs = std::move(runs);
    return CellsOf(files, 0.9)[0];
  };
  const RunResult met_at_9 = Load("auto", 9, 1000, 1000),
                  missed_at_9_5 = Load("auto", 9.5, 500, 1000);
  // Colocated met the goal at all its rates, 4 and 8. So its capacity is at least 8, and may be
  // above that of auto, which is between 9 and 9.5.
  const Cell stopped = cell_of({met_at_9, missed_at_9_5, Load("colocated", 4, 1000, 1000),
                                Load("colocated", 8, 1000, 1000)});
  EXPECT_EQ(stopped.Best(), 0);
  EXPECT_FALSE(stopped.BestIsShown());
  EXPECT_THAT(VerdictSentences(stopped)[0],
              AllOf(StartsWith("auto sustains 9."), HasSubstr(", at most 1."),
                    testing::EndsWith(" times colocated: no difference shown.")));
  EXPECT_EQ(VerdictSentences(stopped)[1], "colocated at least 8.");
  // Colocated missed the goal at its only rate, 4. So its capacity is below 4, and may be above
  // that of auto, which is between 2 and 2.5.
  const Cell missed = cell_of(
      {Load("auto", 2, 1000, 1000), Load("auto", 2.5, 500, 1000), Load("colocated", 4, 600, 1000)});
  EXPECT_EQ(missed.modes[1].capacity.rate, 4);
  EXPECT_EQ(missed.Best(), 0);
  EXPECT_FALSE(missed.BestIsShown());
  EXPECT_THAT(VerdictSentences(missed)[0], testing::EndsWith("colocated: no difference shown."));
  // Here auto is the best mode without doubt: its capacity is at least 9, and that of colocated is
  // below 4.
  const Cell shown = cell_of({met_at_9, Load("colocated", 4, 600, 1000)});
  EXPECT_TRUE(shown.BestIsShown());
  EXPECT_EQ(VerdictSentences(shown)[0],
            "auto sustains at least 9 requests/s at 90 % attainment, at least 2.25 times "
            "colocated: better.");
  const Cell neither = cell_of({met_at_9, Load("colocated", 8, 1000, 1000)});
  EXPECT_FALSE(neither.BestIsShown());
  EXPECT_EQ(VerdictSentences(neither)[0],
            "auto sustains at least 9 requests/s at 90 % attainment; how that compares with "
            "colocated is not known.");
}

TEST(CellTest, ConfirmedIsToldWithItsRatesAndOnlyOfTheCapacityBetweenThem) {
  using Purpose = ProbePlan::Purpose;
  SearchedMode mode{.name = "auto", .finished = true, .confirmed = true};
  mode.loads = {{{.rate = 2}, Load("auto", 2, 1000, 1000)},
                {{.rate = 4}, Load("auto", 4, 500, 1000)},
                {{.purpose = Purpose::kConfirmAt, .rate = 3}, Load("auto", 3, 97, 100, 2)},
                {{.purpose = Purpose::kConfirmAbove, .rate = 3.3}, Load("auto", 3.3, 85, 100, 3)}};
  const auto in_cell = [&] {
    std::vector<InputFile> files(1);
    files[0].searches = {{.modes = {mode}}};
    return CellsOf(files, 0.9)[0].modes[0];
  };
  EXPECT_EQ(ConfirmationText(in_cell()), "confirmed: fresh seeds met 3/s and missed 3.3/s");
  mode.loads.push_back(
      {{.purpose = Purpose::kSameRate, .rate = 2.9}, Load("auto", 2.9, 700, 1000)});
  const CellMode outside = in_cell();
  EXPECT_EQ(ConfirmationText(outside), "not confirmed");
  EXPECT_THAT(outside.notes,
              ElementsAre(AllOf(HasSubstr("fresh seeds met 3 and missed 3.3 requests/s"),
                                HasSubstr("but over all loads the capacity is 2."))));
}

TEST(CellTest, OneLoadAloneIsToldByItsGoodput) {
  std::vector<InputFile> files(1);
  files[0].runs = {Load("", 4, 75, 100)};
  EXPECT_THAT(VerdictSentences(CellsOf(files, 0.9)[0]),
              ElementsAre("server: 3 good requests/s of 4 offered; attainment 75 % (65.7 % to "
                          "82.5 %) of 100."));
}

TEST(CellTest, WhatSpeaksAgainstALoadIsFound) {
  RunResult run = Load("auto", 4, 100, 100);
  EXPECT_THAT(Findings(MeasuredLoad(run)), SizeIs(1));
  EXPECT_EQ(Findings(MeasuredLoad(run))[0].weight, Weight::kFine);
  run.partial = true;
  run.invalid = {"the tool was late"};
  run.remarks = {"the trace was begun again"};
  run.records[3].outcome = Outcome::kRejected;
  run.records[4].sent_s += 0.02;
  run.expect = ExpectResult{.compared = 100, .equal = 99, .different = 1};
  const std::vector<Finding> findings = Findings(MeasuredLoad(run));
  const auto finding = [](Weight weight, const char* text) {
    return AllOf(testing::Field(&Finding::weight, weight),
                 testing::Field(&Finding::text, HasSubstr(text)));
  };
  EXPECT_THAT(findings, Contains(finding(Weight::kInvalid, "the tool was late")));
  EXPECT_THAT(findings, Contains(finding(Weight::kInvalid, "partial")));
  EXPECT_THAT(findings,
              Contains(finding(Weight::kRemark, "sent 1 of 100 requests more than 1 ms")));
  EXPECT_THAT(findings, Contains(finding(Weight::kRemark, "not completed: 1 rejected")));
  EXPECT_THAT(findings, Contains(finding(Weight::kInvalid, "99 of 100 answers as expected")));
  EXPECT_THAT(findings, Contains(finding(Weight::kRemark, "the trace was begun again")));
}

TEST(InputFileTest, RunsAndSearchesAreToldApart) {
  const ScratchFolder folder;
  const RunResult run = SimulatedRun({.window_s = 5});
  ASSERT_TRUE(WriteRunFile(folder.File("run.json"), run).ok());
  EXPECT_THAT(ReadInputFile(folder.File("run.json"))->runs, SizeIs(1));
  const SearchResult search{.modes = {{.name = "auto", .loads = {{{.rate = 4}, run}}}}};
  const std::string path = folder.Write("search.json", SearchToJson(search).dump());
  const InputFile read = ReadInputFile(path).value();
  ASSERT_THAT(read.searches, SizeIs(1));
  EXPECT_EQ(read.searches[0].modes[0].loads[0].run.records.size(), run.records.size());
}

TEST(InputFileTest, WhatIsWrongIsNamedWithTheFileAndThePlace) {
  const ScratchFolder folder;
  const auto message_of = [&](const std::string& text) {
    const std::string path = folder.Write("bad.json", text);
    std::string message(ReadInputFile(path).status().message());
    EXPECT_THAT(message, StartsWith(path + ": "));
    return message.substr(path.size() + 2);
  };
  const std::string run = RunToJson(SimulatedRun({.window_s = 5})).dump(1);
  EXPECT_THAT(message_of(run.substr(0, run.size() / 2)), StartsWith("not JSON at line "));
  EXPECT_THAT(message_of("{\n  \"a\": 1,\n  b\n}"), StartsWith("not JSON at line 3, column 3"));
  EXPECT_THAT(message_of(""), StartsWith("not JSON at line 1, column 1"));
  EXPECT_EQ(message_of("{}"),
            "neither a run (key baton_goodput_run) nor a search (baton_goodput_search)");
  EXPECT_EQ(message_of("[1]"),
            "neither a run (key baton_goodput_run) nor a search (baton_goodput_search)");
  EXPECT_EQ(message_of("{\"baton_goodput_run\": 7}"), "baton_goodput_run is 7; this tool reads 1");
  EXPECT_THAT(message_of("{\"baton_goodput_report\": 1}"),
              StartsWith("this is a report's figures"));
  EXPECT_THAT(message_of(std::string(100000, '[')),
              StartsWith("not JSON at line 1, column 100001"));
  EXPECT_EQ(ReadInputFile(folder.File("none.json")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadInputFile(folder.File("")).status().message()), HasSubstr("folder"));
}

}  // namespace
}  // namespace baton
