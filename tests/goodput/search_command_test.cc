#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/report/cell.h"
#include "tests/goodput/testing/goodput_program.h"
#include "tests/goodput/testing/timed_router.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class SearchCommandTest : public testing::Test {
 protected:
  std::string Arguments() const {
    return absl::StrCat("search --endpoint=", router_.address(),
                        " --connect-timeout=30s --arrivals=uniform --prompt-tokens=8 "
                        "--output-tokens=3 --warmup=50ms --duration=250ms --slo=",
                        slo_, " --out=", out_, " ");
  }

  TimedRouter router_;
  const ScratchFolder folder_;
  const std::string slo_ = folder_.Write("slo.json", R"({"name": "easy", "ttft": "5s"})");
  const std::string out_ = folder_.File("search.json");
};

TEST_F(SearchCommandTest, ComparesModesInTurnAndWritesWhatAReportReads) {
  const Ended ended =
      Goodput(Arguments() + "--compare=disaggregated,colocated --rate=200 --max-rate=400");
  // Exit status 3 means that the machine was busy.
  EXPECT_THAT(ended.exit_status, testing::AnyOf(0, 3)) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("search of 2 modes: about "),
                                  HasSubstr("disaggregated 400/s (bracket): "),
                                  HasSubstr("sustains at least 400 requests/s at 90 % attainment"),
                                  HasSubstr("still reached at the highest rate allowed")));
  const InputFile file = ReadInputFile(out_).value();
  ASSERT_THAT(file.searches, SizeIs(1));
  const SearchResult& search = file.searches[0];
  EXPECT_FALSE(search.partial);
  ASSERT_THAT(search.modes, SizeIs(2));
  for (const SearchedMode& mode : search.modes) {
    ASSERT_THAT(mode.loads, SizeIs(3));
    EXPECT_EQ(mode.loads[0].plan.rate, 200);
    EXPECT_EQ(mode.loads[2].plan.purpose, ProbePlan::Purpose::kSameRate);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(mode.loads[i].run.mode, mode.name);
      EXPECT_EQ(mode.loads[i].run.seed, search.modes[0].loads[i].run.seed);
    }
  }
  const std::string page = folder_.File("report.html"), plots = folder_.File("plots");
  const Ended reported = Goodput(absl::StrCat("report ", out_, " --out=", page, " --svg=", plots));
  EXPECT_EQ(reported.exit_status, 0) << reported.output;
  EXPECT_THAT(folder_.Read("report.html"), HasSubstr("Attainment against offered rate"));
  EXPECT_THAT(folder_.Read("report.json"), HasSubstr("\"baton_goodput_report\": 1"));
  EXPECT_THAT(folder_.Read("plots/attainment.svg"), HasSubstr("</svg>"));
  const Ended same = Goodput(absl::StrCat("diff ", out_, " ", out_, " --fail-on-loss"));
  EXPECT_EQ(same.exit_status, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("capacity at 90 %"));
}

TEST_F(SearchCommandTest, ASilentWindowDoesNotEndIt) {
  // About three of four seeds give a load without arrivals, because of the pauses of --off=2s. The
  // search must replace such a seed.
  for (const char* seed : {"1", "2", "3"}) {
    const Ended ended =
        Goodput(absl::StrCat(Arguments(), "--arrivals=on-off --on=500ms --off=2s --rate=100 ",
                             "--max-rate=200 --min-requests=0 --tail=false --seed=", seed));
    EXPECT_THAT(ended.exit_status, testing::AnyOf(0, 3)) << ended.output;
    const SearchResult search = ReadInputFile(out_)->searches[0];
    EXPECT_FALSE(search.partial);
    for (const SearchedLoad& load : search.modes[0].loads) EXPECT_FALSE(GoodOnes(load.run).empty());
  }
}

TEST_F(SearchCommandTest, WhatIsFoundWithinTheTimeBudgetIsWrittenAsPartial) {
  const Ended ended = Goodput(Arguments() + "--rate=200 --time-budget=700ms");
  EXPECT_EQ(ended.exit_status, 130) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("PARTIAL: partial: --time-budget was used up after "));
  EXPECT_TRUE(ReadInputFile(out_)->searches[0].partial);
}

TEST_F(SearchCommandTest, ALoadThatMetASlowMachineIsRunAgain) {
  router_.ttft = absl::Milliseconds(20);
  std::atomic<int> alone = 0;
  router_.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                            TimedRouter::Writer* writer) {
    // One measurement of the idle machine sends six requests. Three measurements give the reference
    // latency, and one comes before the first load: these 24 requests are fast. The six requests
    // after the first load are slow.
    if (absl::StartsWith(request.request_id(), "unloaded-") && ++alone > 24 && alone <= 30)
      absl::SleepFor(absl::Milliseconds(80));
    return router_.Answer(context, request, writer, request.sampling().max_tokens());
  };
  const Ended ended = Goodput(Arguments() + "--rate=100 --max-rate=100 --steady=1");
  EXPECT_THAT(ended.exit_status, testing::AnyOf(0, 3)) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("the machine was slow, once more"),
                                  HasSubstr("times as long as at first; ")));
  const SearchResult search = ReadInputFile(out_)->searches[0];
  EXPECT_FALSE(search.partial);
  EXPECT_THAT(search.remarks, testing::Contains(HasSubstr("the machine was not steady")));
  EXPECT_THAT(search.modes[0].loads, SizeIs(1));
}

TEST_F(SearchCommandTest, WaitingForASteadyMachineEndsWithTheTimeBudget) {
  std::atomic<int> alone = 0;
  router_.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                            TimedRouter::Writer* writer) {
    // All requests are slow except the first 18, which measure the reference latency.
    if (++alone > 18) absl::SleepFor(absl::Milliseconds(60));
    return router_.Answer(context, request, writer, request.sampling().max_tokens());
  };
  const Ended ended = Goodput(Arguments() + "--rate=100 --steady=0.5 --time-budget=800ms");
  EXPECT_EQ(ended.exit_status, 130) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("--time-budget was used up after 0 loads"));
  // 18 requests measure the reference latency, and each further measurement has 6 requests. The
  // search gives up after far fewer measurements than the max of 100.
  EXPECT_LT(alone, 18 + 12 * 6);
}

TEST_F(SearchCommandTest, CtrlCLeavesAPartialResult) {
  std::atomic<pid_t> tool = 0;
  std::atomic<int> asked = 0;
  router_.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                            TimedRouter::Writer* writer) {
    if (++asked == 150) kill(tool, SIGINT);  // Interrupts the tool during its second load.
    return router_.Answer(context, request, writer, request.sampling().max_tokens());
  };
  const Ended ended = Goodput(Arguments() + "--rate=200 --duration=300ms --tail=false",
                              [&](pid_t pid) { tool = pid; });
  EXPECT_EQ(ended.exit_status, 130) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("PARTIAL: partial: stopped in load "));
  const SearchResult search = ReadInputFile(out_)->searches[0];
  EXPECT_TRUE(search.partial);
  EXPECT_FALSE(search.modes[0].finished);
}

TEST_F(SearchCommandTest, RatesWhoseLoadsAreTooLargeAreLeftOutBeforehand) {
  const Ended ended = Goodput(Arguments() + "--rate=5 --max-probe=1h --time-budget=1ms");
  EXPECT_THAT(ended.output,
              HasSubstr("the search goes no higher: loads of more than 515.6 requests/s would"));
}

TEST_F(SearchCommandTest, ARouterThatIsNotThereIsNamed) {
  const Ended ended = Goodput(absl::StrCat(
      "search --endpoint=127.0.0.1:1 --connect-timeout=100ms --rate=5 --prompt-tokens=8 "
      "--output-tokens=3 --slo=",
      slo_, " --out=", out_));
  EXPECT_EQ(ended.exit_status, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("127.0.0.1:1"));
}

TEST_F(SearchCommandTest, FlagsThatCanNotBeUsedAreNamed) {
  const auto refused = [&](const std::string& arguments) {
    const Ended ended = Goodput(Arguments() + arguments);
    EXPECT_EQ(ended.exit_status, 2) << ended.output;
    return ended.output;
  };
  EXPECT_THAT(refused(""), HasSubstr("--rate is needed"));
  EXPECT_THAT(refused("--rate=5 --attainment=90"), HasSubstr("--attainment=90 is not 0.01 to"));
  EXPECT_THAT(refused("--rate=5 --resolution=0"), HasSubstr("--resolution=0 is not"));
  EXPECT_THAT(refused("--rate=5 --max-rate=2"), HasSubstr("--rate=5 is not between"));
  EXPECT_THAT(refused("--rate=5 --steady=2"), HasSubstr("--steady=2 is not 0.05 to 1, nor 0"));
  EXPECT_THAT(refused("--rate=5 --max-probe=1ms"), HasSubstr("--max-probe=1ms is not"));
  EXPECT_THAT(refused("--rate=5 --max-probe=-5s"),
              HasSubstr("--max-probe=-5s is not --duration (250ms) to 720h, nor 0"));
  EXPECT_THAT(refused("--rate=5 --max-probe=inf"), HasSubstr("--max-probe=inf is not"));
  EXPECT_THAT(refused("--rate=5 --least-requests=40"),
              HasSubstr("unknown flag --least-requests; it is called --min-requests now"));
  EXPECT_THAT(refused("--rate=5 --min-requests=4000000000"),
              HasSubstr("--min-requests=4000000000 is not 0 to 100000"));
  EXPECT_THAT(refused("--rate=0.02 --min-requests=100000"),
              AllOf(HasSubstr("--min-requests=100000 needs a window of 1388h53m20s at "
                              "--rate=0.02: "),
                    HasSubstr("30 days")));
  EXPECT_THAT(refused("--rate=0"), HasSubstr("--rate=0 is not"));
  EXPECT_THAT(refused("--rate=5 --compare=auto"), HasSubstr("--compare has 1"));
  EXPECT_THAT(refused("--rate=5 --compare=auto,colocated --mode=auto"),
              HasSubstr("--mode and --compare can't be used together; give one of them"));
  // A load lasts 120.55 s: 50 ms of warm-up, a window of 0.5 s and a tail of 120 s. 99 % of a
  // million requests in 120.55 s are 8212 requests/s.
  EXPECT_THAT(refused("--rate=5 --max-rate=10000"),
              HasSubstr("--max-rate=10000: loads of more than 8212 requests/s would have more "
                        "than 1000000 requests"));
  EXPECT_THAT(refused("--rate=900 --max-probe=1h"),
              HasSubstr("--rate=900: loads of more than 515.6 requests/s"));
  EXPECT_THAT(refused("--rate=5 --requests=5"), HasSubstr("--requests is not a flag of search"));
  EXPECT_THAT(refused("--rate=5 --time-budget=0s"), HasSubstr("--time-budget is not above 0"));
  EXPECT_THAT(refused("--rate=5 --slo="), HasSubstr("search needs --slo=NAME, such as chat"));
  EXPECT_THAT(refused("--rate=5 --out="), HasSubstr("search needs --out=FILE"));
  EXPECT_THAT(refused("--rate=5 --out=/none/there"), HasSubstr("/none/there"));
}

}  // namespace
}  // namespace baton
