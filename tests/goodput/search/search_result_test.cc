#include "tests/goodput/search/search_result.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/goodput/search/simulated_run.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;
using testing::HasSubstr;

SearchResult SomeSearch() {
  SearchResult search{.tool_version = "0.1.0",
                      .started_at = "2026-11-21T12:00:00Z",
                      .spec = {{"attainment", "0.9"}},
                      .goal = 0.9,
                      .remarks = {"a remark"}};
  for (const char* name : {"disaggregated", "colocated"}) {
    SearchedMode mode{.name = name, .endpoint = "h:1", .finished = true, .notes = {"a note"}};
    for (const double rate : {2.0, 8.0}) {
      mode.loads.push_back(
          {{.purpose = ProbePlan::Purpose::kBracket, .rate = rate, .window_s = 10, .seed = 3},
           SimulatedRun({.mode = name, .rate = rate, .seed = 3, .window_s = 10})});
    }
    search.modes.push_back(std::move(mode));
  }
  return search;
}

TEST(SearchResultTest, ReadsBackWhatItWrote) {
  const SearchResult search = SomeSearch();
  const json written = SearchToJson(search);
  const SearchResult back = SearchFromJson(written).value();
  EXPECT_EQ(SearchToJson(back), written);
  EXPECT_EQ(back.modes[1].loads[1].run.records.size(), search.modes[1].loads[1].run.records.size());
  EXPECT_EQ(back.modes[0].loads[0].plan.seed, 3u);
  EXPECT_TRUE(back.modes[0].finished);
  EXPECT_FALSE(back.modes[0].confirmed);
}

TEST(SearchResultTest, TellsCapacitiesAndRatios) {
  const SearchResult search = SomeSearch();
  const json written = SearchToJson(search);
  const Capacities capacities = CapacitiesOf(search);
  EXPECT_EQ(written["modes"][0]["capacity"]["rate"], capacities.of(0).rate);
  ASSERT_EQ(written["ratios"].size(), 2u);
  EXPECT_EQ(written["ratios"][0]["mode"], "disaggregated");
  EXPECT_EQ(written["ratios"][0]["to"], "colocated");
  EXPECT_EQ(written["ratios"][0]["ratio"], capacities.RatioOf(0, 1).value);
}

TEST(SearchResultTest, WhatFreshSeedsHaveNotShownIsNotConfirmed) {
  SearchedMode mode{.name = "auto", .finished = true, .confirmed = true};
  const auto load = [&](ProbePlan::Purpose purpose, double rate, int good) {
    RunResult run;  // Each load is a run of 100 requests.
    for (int i = 0; i < 100; ++i) {
      RequestRecord record{.measured = true};
      record.outcome = i < good ? Outcome::kCompleted : Outcome::kFailed;
      record.token_s = {1};
      run.records.push_back(record);
    }
    mode.loads.push_back({{.purpose = purpose, .rate = rate}, run});
  };
  using Purpose = ProbePlan::Purpose;
  EXPECT_FALSE(ConfirmedRatesOf(mode, 0.9).has_value());
  // The confirmation at 4.6 is refuted, and the search then confirms 3.8. So only the load at 3.8
  // counts.
  load(Purpose::kConfirmAt, 4.6, 20);
  load(Purpose::kConfirmAt, 3.8, 92);
  EXPECT_FALSE(ConfirmedRatesOf(mode, 0.9).has_value());
  load(Purpose::kConfirmAbove, 4.2, 91);
  EXPECT_FALSE(ConfirmedRatesOf(mode, 0.9).has_value());
  // The two loads at 4.2 together have an attainment of 88 %, which is below the goal.
  load(Purpose::kConfirmAbove, 4.2, 85);
  const auto confirmed = ConfirmedRatesOf(mode, 0.9);
  ASSERT_TRUE(confirmed.has_value());
  EXPECT_EQ(confirmed->met, 3.8);
  EXPECT_EQ(confirmed->missed, 4.2);
  EXPECT_TRUE(confirmed->Hold({.where = Capacity::Where::kWithin, .rate = 4}));
  EXPECT_FALSE(confirmed->Hold({.where = Capacity::Where::kWithin, .rate = 3.7}));
  EXPECT_FALSE(confirmed->Hold({.where = Capacity::Where::kAbove, .rate = 4}));
  load(Purpose::kConfirmAt, 3.8, 80);  // The two loads at 3.8 together have an attainment of 86 %.
  EXPECT_FALSE(ConfirmedRatesOf(mode, 0.9).has_value());
  mode.loads.pop_back();
  mode.confirmed = false;
  EXPECT_FALSE(ConfirmedRatesOf(mode, 0.9).has_value());
}

TEST(SearchResultTest, LoadsThatWereStoppedDoNotCount) {
  SearchResult search = SomeSearch();
  const size_t all = ProbesOf(search.modes[0]).size();
  search.modes[0].loads[1].run.partial = true;
  EXPECT_EQ(ProbesOf(search.modes[0]).size(), all - 1);
}

TEST(SearchResultTest, NamesWhatIsWrong) {
  const json good = SearchToJson(SomeSearch());
  const auto message_of = [&](const std::function<void(json*)>& spoil) {
    json all = good;
    spoil(&all);
    return std::string(SearchFromJson(all).status().message());
  };
  EXPECT_EQ(message_of([](json*) {}), "");
  EXPECT_EQ(message_of([](json* all) { (*all)["baton_goodput_search"] = 9; }),
            "baton_goodput_search is 9; this tool reads 1");
  EXPECT_EQ(message_of([](json* all) { (*all)["attainment"] = 1.0; }),
            "attainment: 1 is not between 0 and 1");
  EXPECT_EQ(message_of([](json* all) { all->erase("modes"); }), "modes: missing");
  EXPECT_EQ(message_of([](json* all) { (*all)["modes"][1]["loads"][0]["purpose"] = "luck"; }),
            "modes[1].loads[0].purpose: 'luck' is not a purpose");
  EXPECT_EQ(message_of([](json* all) { (*all)["modes"][0]["loads"][1]["rate"] = -1; }),
            "modes[0].loads[1].rate: -1 is not a rate");
  EXPECT_EQ(message_of([](json* all) { (*all)["modes"][0]["loads"][1]["run"]["seed"] = "x"; }),
            "modes[0].loads[1].run: seed: is string, not a whole number from 0");
  EXPECT_EQ(message_of([](json* all) { (*all)["modes"][0]["loads"][1]["run"] = 4; }),
            "modes[0].loads[1].run: is number, not an object");
  EXPECT_EQ(message_of([](json* all) { *all = json::array(); }),
            "the file is array, not an object");
}

}  // namespace
}  // namespace baton
