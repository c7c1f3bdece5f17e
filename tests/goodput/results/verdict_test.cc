#include "tests/goodput/results/verdict.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/goodput/results/verdict_text.h"

namespace baton {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// Returns a completed request that was scheduled at `scheduled_s`. Its first token came after
// `ttft_s`, and the others after `gaps_s`.
RequestRecord Answered(double scheduled_s, double ttft_s, std::vector<double> gaps_s) {
  RequestRecord record;
  record.measured = true;
  record.scheduled_s = record.sent_s = scheduled_s;
  record.token_s = {scheduled_s + ttft_s};
  for (const double gap_s : gaps_s) record.token_s.push_back(record.token_s.back() + gap_s);
  record.ended_s = record.token_s.back();
  record.wanted_tokens = static_cast<uint32_t>(record.token_s.size());
  record.outcome = Outcome::kCompleted;
  record.status = "OK";
  return record;
}

RequestRecord Ended(Outcome outcome, const std::string& status) {
  RequestRecord record;
  record.measured = true;
  record.outcome = outcome;
  record.status = status;
  return record;
}

const SloTargets kTargets = {.name = "test", .ttft_s = 0.5, .tpot_s = 0.1};

TEST(VerdictTest, LatenciesAreThoseOfTheDefinitions) {
  // The request was sent late, but all latencies count from its scheduled arrival.
  RequestRecord record = Answered(10, 0.25, {0.1, 0.3, 0.05, 0.15});
  record.sent_s = 10.2;
  EXPECT_NEAR(Ttft(record), 0.25, 1e-12);
  EXPECT_NEAR(Tpot(record), 0.15, 1e-12);
  EXPECT_NEAR(W10(record), 0.3, 1e-12);  // ceil(4 / 10) = 1 gap, the longest.
  EXPECT_NEAR(EndToEnd(record), 0.85, 1e-12);
}

TEST(VerdictTest, W10IsTheMeanOfTheLargestTenthRoundedUp) {
  std::vector<double> gaps(11, 0.01);
  gaps[3] = 0.5;
  gaps[7] = 0.3;
  // W10 is the mean of the longest tenth of the gaps. A tenth of 11 gaps is rounded up to two gaps.
  EXPECT_NEAR(W10(Answered(0, 0.1, gaps)), 0.4, 1e-12);
  gaps.pop_back();
  EXPECT_NEAR(W10(Answered(0, 0.1, gaps)), 0.5, 1e-12);  // W10 is the longest of 10 gaps.
}

TEST(VerdictTest, OneTokenHasNoPaceAndIsJudgedByItsFirst) {
  const RequestRecord record = Answered(0, 0.4, {});
  EXPECT_EQ(Tpot(record), 0);
  EXPECT_TRUE(Judge(record, kTargets).strict);
  const Verdict verdict = ComputeVerdict(
      {.targets = kTargets, .window_end_s = 1, .records = {record, Answered(0, 0.4, {0.05})}});
  EXPECT_EQ(verdict.single_token, 1u);
  EXPECT_EQ(verdict.tpot.count, 1u);
  EXPECT_NEAR(verdict.tpot.p50, 0.05, 1e-12);
}

TEST(VerdictTest, TargetsAreMetWhenTheyAreNotExceeded) {
  // The TTFT is exactly 250,000 microseconds, but as a difference of doubles it is a little more
  // than 0.25 seconds.
  RequestRecord record = Answered(0, 0.25, {});
  record.scheduled_s = 0.282;
  record.token_s = {0.532};
  ASSERT_GT(Ttft(record), 0.25);
  EXPECT_TRUE(Judge(record, {.ttft_s = 0.25}).good);
  record.token_s = {0.532001};
  EXPECT_FALSE(Judge(record, {.ttft_s = 0.25}).good);
  EXPECT_TRUE(Judge(Answered(0, 0.5, {0.125}), {.ttft_s = 0.5, .tpot_s = 0.125}).good);
  EXPECT_FALSE(Judge(Answered(0, 0.5, {0.125}), {.ttft_s = 0.499, .tpot_s = 0.125}).good);
  EXPECT_FALSE(Judge(Answered(0, 0.5, {0.125}), {.ttft_s = 0.5, .tpot_s = 0.124}).good);
  EXPECT_FALSE(Judge(Answered(0, 0.5, {0.125}), {.e2e_s = 0.624}).good);
  // Without targets no target can be missed.
  EXPECT_TRUE(Judge(Answered(0, 99, {9.9}), {}).strict);
  // The mean gap meets the target. The longest tenth of the gaps, here one gap, is more than twice
  // as long as the target: the answer is good, but not by the strict rule.
  const Judgement uneven = Judge(Answered(0, 0.1, {0.01, 0.21, 0.01}), kTargets);
  EXPECT_TRUE(uneven.good);
  EXPECT_FALSE(uneven.strict);
}

TEST(VerdictTest, WhateverBecameOfARequestItStaysInTheDenominator) {
  RunResult run{.targets = kTargets, .window_begin_s = 5, .window_end_s = 15};
  run.records.push_back(Answered(6, 0.1, {0.05, 0.05}));
  run.records.push_back(Ended(Outcome::kRejected, "RESOURCE_EXHAUSTED"));
  run.records.push_back(Ended(Outcome::kTimedOut, "DEADLINE_EXCEEDED"));
  run.records.push_back(Ended(Outcome::kFailed, "UNAVAILABLE"));
  run.records.push_back(Ended(Outcome::kStopped, "CANCELLED"));
  run.records.push_back(Ended(Outcome::kNotSent, ""));
  // Every latency is met, but one token is missing, so the answer is not good.
  run.records.push_back(Answered(7, 0.1, {0.05}));
  run.records.back().outcome = Outcome::kWrongLength;
  // A request outside the window counts in no figure.
  run.records.push_back(Answered(1, 0.1, {0.05, 0.05}));
  run.records.back().measured = false;

  const Verdict verdict = ComputeVerdict(run);
  EXPECT_EQ(verdict.offered, 7u);
  EXPECT_EQ(verdict.completed, 1u);
  EXPECT_EQ(verdict.good, 1u);
  EXPECT_DOUBLE_EQ(verdict.attainment, 1.0 / 7);
  EXPECT_DOUBLE_EQ(verdict.goodput, 0.1);
  EXPECT_DOUBLE_EQ(verdict.offered_rate, 0.7);
  EXPECT_DOUBLE_EQ(verdict.token_goodput, 0.3);
  EXPECT_DOUBLE_EQ(verdict.token_rate, 0.5);
  EXPECT_THAT(verdict.failures,
              ElementsAre(Pair("CANCELLED", 1), Pair("DEADLINE_EXCEEDED", 1), Pair("OK", 1),
                          Pair("RESOURCE_EXHAUSTED", 1), Pair("UNAVAILABLE", 1)));
  EXPECT_EQ(verdict.outcomes.at("not_sent"), 1u);
}

TEST(VerdictTest, PercentilesAreOfTheNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Percentile(values, 0.5), 50);
  EXPECT_EQ(Percentile(values, 0.9), 90);
  EXPECT_EQ(Percentile(values, 0.99), 99);
  EXPECT_EQ(Percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Percentile({3, 1, 2}, 0), 1);
  EXPECT_EQ(Percentile({3, 1, 2}, 1), 3);
  EXPECT_EQ(Percentile({}, 0.5), 0);
}

TEST(VerdictTest, QuartilesAreOfPromptLength) {
  RunResult run{.targets = kTargets, .window_end_s = 1};
  for (uint32_t i = 0; i < 9; ++i) {
    run.records.push_back(Answered(0, i < 6 ? 0.1 : 0.9, {0.01}));  // Long prompts miss TTFT.
    run.records.back().prompt_tokens = 10 * (i + 1);
  }
  const Verdict verdict = ComputeVerdict(run);
  std::vector<uint32_t> offered, good, shortest, longest;
  for (const PromptQuartile& quartile : verdict.quartiles) {
    offered.push_back(quartile.offered);
    good.push_back(quartile.good);
    shortest.push_back(quartile.shortest_tokens);
    longest.push_back(quartile.longest_tokens);
  }
  EXPECT_THAT(offered, ElementsAre(3, 2, 2, 2));
  EXPECT_THAT(good, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(shortest, ElementsAre(10, 40, 60, 80));
  EXPECT_THAT(longest, ElementsAre(30, 50, 70, 90));
}

TEST(VerdictTest, TheToolsOwnLagIsTold) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 100; ++i) {
    records.push_back(Answered(i, 0.1, {0.01}));
    records.back().sent_s = i + (i == 50 ? 0.25 : i < 2 ? 0.002 : 0.0005);
  }
  records.push_back(Ended(Outcome::kNotSent, ""));
  const ClientLag lag = LagOf(records);
  EXPECT_EQ(lag.sent, 100u);
  EXPECT_EQ(lag.late, 3u);
  EXPECT_NEAR(lag.p99_s, 0.002, 1e-9);
  EXPECT_NEAR(lag.worst_s, 0.25, 1e-9);
}

TEST(VerdictTest, PhasesAreMeansOfThoseThatToldThem) {
  RunResult run{.window_end_s = 1};
  for (const double prefill_s : {0.1, 0.3}) {
    run.records.push_back(Answered(0, 1, {}));
    run.records.back().has_phases = true;
    run.records.back().phases.prefill_s = prefill_s;
  }
  run.records.push_back(Answered(0, 1, {}));
  const Verdict verdict = ComputeVerdict(run);
  EXPECT_EQ(verdict.with_phases, 2u);
  EXPECT_NEAR(verdict.mean_phases.prefill_s, 0.2, 1e-12);
}

TEST(VerdictTest, LossesAreCountedForThoseThatWereNotGood) {
  RunResult run{.targets = kTargets, .window_end_s = 1};
  // The first request is good by the times that the tool measured, so its `lost_to` is not counted.
  // The `lost_to` of the last request is not counted, because that request did not complete.
  run.records = {Answered(0, 0.1, {0.01}), Answered(0, 0.9, {0.01}), Answered(0, 0.9, {0.01}),
                 Answered(0, 0.1, {0.9}), Ended(Outcome::kFailed, "UNAVAILABLE")};
  for (RequestRecord& record : run.records) record.lost_to = "queue";
  run.records[3].lost_to = "decode";
  EXPECT_THAT(ComputeVerdict(run).lost_to, ElementsAre(Pair("decode", 1), Pair("queue", 2)));
}

TEST(VerdictTest, NothingOfferedIsNoDivisionByZero) {
  const Verdict verdict = ComputeVerdict({});
  EXPECT_EQ(verdict.attainment, 0);
  EXPECT_EQ(verdict.goodput, 0);
  EXPECT_THAT(VerdictText({}, verdict), HasSubstr("goodput 0.000"));
}

TEST(VerdictTextTest, SaysWhatMustNotBeOverlooked) {
  RunResult run{.targets = kTargets, .window_end_s = 1, .partial = true, .invalid = {"too late"}};
  run.records = {Answered(0, 0.1, {0.01}), Ended(Outcome::kRejected, "RESOURCE_EXHAUSTED")};
  const std::string text = VerdictText(run, ComputeVerdict(run));
  EXPECT_THAT(text, testing::StartsWith("PARTIAL"));
  EXPECT_THAT(text, HasSubstr("INVALID: too late"));
  EXPECT_THAT(text, HasSubstr("attainment 50.00 %"));
  EXPECT_THAT(text, HasSubstr("RESOURCE_EXHAUSTED 1"));
}

}  // namespace
}  // namespace baton
