#include "tests/goodput/search/capacity_search.h"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A server with a known attainment at each rate. The probe's seed decides which requests miss.
struct KnownServer {
  std::function<double(double rate)> attained;
  uint64_t luck = 0;

  std::vector<uint8_t> Run(const ProbePlan& plan) const {
    Draws draws(plan.seed << 20 ^ luck);
    std::vector<uint8_t> good(static_cast<size_t>(plan.rate * plan.window_s));
    for (uint8_t& one : good) one = draws.Below(1 << 20) < (1 << 20) * attained(plan.rate);
    return good;
  }
};

// Returns an attainment curve that crosses `goal` at the rate `capacity`. The curve is steep there,
// as with a queue.
std::function<double(double)> Knee(double capacity, double goal, double steep = 12) {
  const double shift = std::log(goal / (1 - goal)) / steep;
  return [=](double rate) { return 1 / (1 + std::exp(steep * (rate / capacity - 1 - shift))); };
}

CapacitySearch Searched(const SearchOptions& options, const KnownServer& server,
                        int max_probes = 60) {
  CapacitySearch search(options);
  while (search.Next() && max_probes-- > 0) search.Add(server.Run(*search.Next()));
  EXPECT_TRUE(search.finished());
  return search;
}

TEST(CapacitySearchTest, FindsAKnownCapacityWithinItsBound) {
  for (const double capacity : {0.7, 6.2, 45.0}) {
    double worst = 0;
    for (uint64_t luck = 0; luck < 10; ++luck) {
      const SearchOptions options{.first_rate = 4,
                                  .probe_s = 60,
                                  .longest_s = 240,
                                  .min_requests = 300,
                                  .seed = 100 * luck};
      const CapacitySearch search = Searched(options, {Knee(capacity, 0.9), luck});
      const Capacity found = Capacities({search.probes()}, 0.9, 0).of(0);
      EXPECT_EQ(found.where, Capacity::Where::kWithin);
      worst = std::max(worst, std::abs(found.rate / capacity - 1));
    }
    EXPECT_LT(worst, 0.05) << capacity;
  }
}

TEST(CapacitySearchTest, NinetyNinePercentTakesLongerProbesAndIsFoundToo) {
  for (uint64_t luck = 0; luck < 5; ++luck) {
    const SearchOptions options{.goal = 0.99, .first_rate = 2, .probe_s = 100, .longest_s = 800};
    const CapacitySearch search = Searched(options, {Knee(10, 0.99, 30), luck});
    EXPECT_NEAR(Capacities({search.probes()}, 0.99, 0).of(0).rate, 10, 0.5);
  }
}

TEST(CapacitySearchTest, GoesFromBracketToBisectionToConfirmation) {
  CapacitySearch search({.first_rate = 1, .probe_s = 100, .longest_s = 100});
  const KnownServer server{[](double rate) { return rate < 5.3 ? 1.0 : 0.0; }};
  std::vector<std::string> steps;
  while (search.Next()) {
    const ProbePlan plan = *search.Next();
    steps.push_back(absl::StrCat(PurposeName(plan.purpose), " ", std::round(plan.rate * 100) / 100,
                                 " seed ", plan.seed));
    search.Add(server.Run(plan));
  }
  EXPECT_THAT(steps,
              testing::ElementsAre("bracket 1 seed 1", "bracket 2 seed 2", "bracket 4 seed 3",
                                   "bracket 8 seed 4", "bisect 5.66 seed 5", "bisect 4.76 seed 6",
                                   "bisect 5.19 seed 7", "bisect 5.42 seed 8", "bisect 5.3 seed 9",
                                   testing::StartsWith("confirm 4.9"),
                                   testing::StartsWith("confirm above 5.")));
  EXPECT_TRUE(search.confirmed());
  EXPECT_LT(search.high(), search.low() * 1.03);
  EXPECT_LE(search.low(), 5.3);
  EXPECT_GE(search.high(), 5.3);
}

TEST(CapacitySearchTest, AnUndecidedRateIsLengthenedUpToItsBudgetThenJudgedByTheValue) {
  CapacitySearch search({.first_rate = 10, .probe_s = 10, .longest_s = 40});
  std::vector<uint8_t> good(100, 1);
  for (int i = 0; i < 9; ++i) good[11 * i] = 0;  // 91 % are good.
  search.Add(good);
  ASSERT_EQ(search.Next()->purpose, ProbePlan::Purpose::kLengthen);
  EXPECT_EQ(search.Next()->rate, 10);
  EXPECT_EQ(search.Next()->window_s, 10);
  search.Add(good);
  EXPECT_EQ(search.Next()->window_s, 20);
  EXPECT_THAT(search.Notes(), IsEmpty());
  search.Add(good);
  EXPECT_EQ(search.Next()->rate, 20);
  EXPECT_EQ(search.low(), 10);
  EXPECT_THAT(search.Notes(), Contains(HasSubstr("undecided at 10 requests/s: 91.0 %")));
}

TEST(CapacitySearchTest, WhatTheConfirmationRefutesIsSearchedAgain) {
  // Until the confirmation, the search measures a server that was lucky. From then on, it measures
  // the server's real capacity, which is a third lower.
  const KnownServer lucky{Knee(6, 0.9, 40)}, real{Knee(4, 0.9, 40)};
  CapacitySearch search({.first_rate = 4, .probe_s = 100, .longest_s = 400});
  bool confirming = false;
  int probes = 0;
  while (search.Next() && ++probes < 80) {
    confirming = confirming || search.Next()->purpose == ProbePlan::Purpose::kConfirmAt;
    search.Add((confirming ? real : lucky).Run(*search.Next()));
  }
  EXPECT_TRUE(search.finished());
  EXPECT_THAT(search.Notes(), Contains(HasSubstr("was not confirmed by a fresh seed")));
  EXPECT_LT(search.low(), 5.8);
}

// Returns the outcomes of `offered` requests with `misses` spread evenly.
std::vector<uint8_t> EvenOutcomes(size_t offered, size_t misses) {
  std::vector<uint8_t> good(offered, 1);
  for (size_t i = 0; i < misses; ++i) good[i * offered / misses] = 0;
  return good;
}

// Returns a search that has found 5.3 requests/s and is about to confirm it.
CapacitySearch AboutToConfirm(const SearchOptions& options) {
  CapacitySearch search(options);
  const KnownServer server{[](double rate) { return rate < 5.3 ? 1.0 : 0.0; }};
  while (search.Next() && search.Next()->purpose != ProbePlan::Purpose::kConfirmAt)
    search.Add(server.Run(*search.Next()));
  EXPECT_TRUE(search.Next().has_value());
  return search;
}

const SearchOptions kLongEnough = {.first_rate = 1, .probe_s = 60, .longest_s = 120};

TEST(CapacitySearchTest, AConfirmationThatMissesTheGoalByItsValueIsNone) {
  for (const bool above : {false, true}) {
    CapacitySearch search = AboutToConfirm(kLongEnough);
    EXPECT_NEAR(search.Next()->rate, 0.95 * 5.3, 0.1);
    if (above) {
      search.Add(EvenOutcomes(300, 0));
      ASSERT_EQ(search.Next()->purpose, ProbePlan::Purpose::kConfirmAbove);
      EXPECT_NEAR(search.Next()->rate, 1.05 * 5.3, 0.1);
    }
    const std::vector<uint8_t> wrong = above ? EvenOutcomes(300, 27) : EvenOutcomes(300, 33);
    const double rate = search.Next()->rate;
    const uint64_t seed = search.Next()->seed;
    search.Add(wrong);  // The result is uncertain, so the rate is loaded once more.
    ASSERT_TRUE(search.Next().has_value());
    EXPECT_EQ(search.Next()->rate, rate);
    EXPECT_EQ(search.Next()->seed, seed + 1);
    search.Add(wrong);
    EXPECT_TRUE(search.finished());
    EXPECT_FALSE(search.confirmed());
    EXPECT_THAT(search.Notes(),
                Contains(AllOf(HasSubstr("not confirmed: fresh seeds left undecided"),
                               HasSubstr(above ? "5 % above" : "5 % below"),
                               HasSubstr(above ? "91.0 %" : "89.0 %"), HasSubstr("of 600"))));
  }
}

TEST(CapacitySearchTest, ASecondLoadMayRightAConfirmationThatWasUndecided) {
  CapacitySearch search = AboutToConfirm(kLongEnough);
  search.Add(EvenOutcomes(300, 33));
  search.Add(EvenOutcomes(300, 20));
  ASSERT_EQ(search.Next()->purpose, ProbePlan::Purpose::kConfirmAbove);
  search.Add(EvenOutcomes(300, 200));
  EXPECT_TRUE(search.finished());
  EXPECT_TRUE(search.confirmed()) << absl::StrJoin(search.Notes(), "\n");
}

TEST(CapacitySearchTest, AConfirmationIsNoShorterThanAProbe) {
  for (const SearchOptions& options :
       {SearchOptions{.first_rate = 1, .probe_s = 100, .longest_s = 120},
        SearchOptions{.first_rate = 1, .probe_s = 10, .longest_s = 20, .min_requests = 400}}) {
    CapacitySearch search = AboutToConfirm(options);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(search.Next().has_value());
      EXPECT_GE(search.Next()->window_s, options.probe_s);
      EXPECT_GE(search.Next()->window_s * search.Next()->rate, options.min_requests * 0.999);
      search.Add(EvenOutcomes(500, 0));
    }
  }
}

// A goal of 99 % can't be shown to be met by 300 requests, even if none of them misses.
TEST(CapacitySearchTest, ALoadThatCouldNotRefuteDoesNotConfirm) {
  const SearchOptions options{.goal = 0.99, .first_rate = 1, .probe_s = 30, .longest_s = 60};
  CapacitySearch tight = AboutToConfirm(options);
  tight.Add(EvenOutcomes(300, 0));
  EXPECT_TRUE(tight.finished());
  EXPECT_FALSE(tight.confirmed());
  EXPECT_THAT(tight.Notes(), Contains(AllOf(HasSubstr("5 % above the capacity found was not tried"),
                                            HasSubstr("99 % to be met takes 420 requests, 7"),
                                            HasSubstr("the longest for one rate is 60 s"))));
  CapacitySearch longer = AboutToConfirm({.goal = 0.99, .probe_s = 30, .longest_s = 120});
  longer.Add(EvenOutcomes(300, 0));
  ASSERT_FALSE(longer.finished());
  EXPECT_GT(longer.Next()->window_s * longer.Next()->rate, 400);
  longer.Add(
      EvenOutcomes(300, 4));  // Attainment is 98.7 %, but with fewer requests than were planned.
  EXPECT_FALSE(longer.confirmed());
}

TEST(CapacitySearchTest, WhatIsConfirmedHoldsTheCapacityThatIsTold) {
  CapacitySearch search({.first_rate = 4, .probe_s = 10, .longest_s = 20, .min_requests = 20});
  const KnownServer server{[](double rate) { return rate < 5.3 ? 0.93 : 0.7; }};
  while (search.Next() && search.Next()->purpose != ProbePlan::Purpose::kConfirmAt)
    search.Add(server.Run(*search.Next()));
  ASSERT_TRUE(search.Next().has_value());
  search.Add(EvenOutcomes(100, 9));  // The attainment meets the goal, but not with certainty.
  ASSERT_EQ(search.Next()->purpose, ProbePlan::Purpose::kConfirmAbove);
  // All requests of the load at 5 % above the capacity are good. This shifts the fitted curve so
  // much that the capacity over all loads is below the rates of both confirming loads.
  search.Add(EvenOutcomes(3000, 3000));
  ASSERT_TRUE(search.finished());
  EXPECT_LT(Capacities({search.probes()}, 0.9, 0).of(0).rate,
            search.probes()[search.probes().size() - 2].rate);
  EXPECT_FALSE(search.confirmed());
  EXPECT_THAT(search.Notes(), Contains(HasSubstr("but over all loads the capacity is")));
}

TEST(CapacitySearchTest, CapacityOutOfReachEndsWithANote) {
  const SearchOptions options{.first_rate = 1, .min_rate = 0.1, .max_rate = 8};
  const CapacitySearch never = Searched(options, {[](double) { return 0.2; }});
  EXPECT_THAT(never.Notes(), Contains(HasSubstr("missed even at the lowest rate allowed, 0.1")));
  EXPECT_EQ(never.low(), 0);
  const CapacitySearch always = Searched(options, {[](double) { return 1.0; }});
  EXPECT_THAT(always.Notes(), Contains(HasSubstr("highest rate allowed, 8 requests/s")));
  EXPECT_EQ(always.low(), 8);
}

TEST(CapacitySearchTest, NothingIsConfirmedAboveTheHighestRate) {
  const SearchOptions options{.first_rate = 1, .max_rate = 8, .resolution = 0.01};
  const CapacitySearch search = Searched(options, {Knee(7.9, 0.9)});
  for (const Probe& probe : search.probes()) EXPECT_LE(probe.rate, 8);
  EXPECT_FALSE(search.confirmed());
  EXPECT_THAT(search.Notes(), Contains(HasSubstr("above the highest rate that may be tried, 8")));
}

TEST(CapacitySearchTest, AttainmentThatRisesWithTheRateIsNoted) {
  CapacitySearch search({.first_rate = 1, .probe_s = 100, .longest_s = 100});
  search.Add(std::vector<uint8_t>(100, 1));
  std::vector<uint8_t> half(200, 1);
  for (size_t i = 0; i < half.size(); i += 2) half[i] = 0;
  search.Add(half);                          // The rate 2 is missed.
  search.Add(std::vector<uint8_t>(141, 1));  // The rate 1.41 is met.
  EXPECT_THAT(search.Notes(), IsEmpty());
  CapacitySearch odd({.first_rate = 1, .probe_s = 100, .longest_s = 100, .min_requests = 1});
  odd.Add(std::vector<uint8_t>(half.begin(), half.begin() + 100));  // The rate 1 is missed.
  odd.Add(std::vector<uint8_t>(50, 0));  // The rate 0.5 is missed by more.
  EXPECT_THAT(odd.Notes(), Contains(HasSubstr("not monotonous: 0.0 % (0.0 to 7.1) of 50 at 0.5")));
}

TEST(CapacitySearchTest, TheForecastHoldsAndShrinks) {
  const SearchOptions options{.first_rate = 4, .probe_s = 60, .longest_s = 240};
  CapacitySearch search(options);
  const Interval forecast = search.WindowsLeft();
  EXPECT_GT(forecast.low, 5 * 60);
  const KnownServer server{Knee(7, 0.9)};
  double spent = 0;
  while (search.Next()) {
    spent += search.Next()->window_s;
    search.Add(server.Run(*search.Next()));
  }
  EXPECT_GE(spent, forecast.low * 0.9);
  EXPECT_LE(spent, forecast.high * 1.2);
  EXPECT_EQ(search.WindowsLeft().high, 0);
}

TEST(CapacitySearchTest, LowRatesGetWindowsLongEnoughForARequestCount) {
  CapacitySearch search({.first_rate = 0.5, .probe_s = 10, .longest_s = 20, .min_requests = 50});
  EXPECT_EQ(search.Next()->window_s, 100);
}

}  // namespace
}  // namespace baton
