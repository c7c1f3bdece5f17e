#include "tests/goodput/report/phases.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr SloTargets kTargets = {.ttft_s = 0.5, .tpot_s = 0.1};

// Returns a request that arrives at 10 s: queue 0.2 s, prefill 0.1 s, 0.02 s until the first token
// leaves the router, hand-over 0.05 s, wait 0.03 s, decode 0.4 s in four steps, and 0.01 s outside
// the router in each direction.
RequestRecord Record() {
  RequestRecord record;
  record.measured = true;
  record.scheduled_s = 10;
  record.sent_s = 10;
  record.outcome = Outcome::kCompleted;
  record.token_s = {10.34, 10.52, 10.62, 10.72, 10.82};
  record.ended_s = 10.83;
  record.prompt_tokens = 100;
  record.wanted_tokens = 5;
  record.has_phases = true;
  record.phases = {.queue_s = 0.2,
                   .prefill_s = 0.1,
                   .handover_exposed_s = 0.05,
                   .decode_wait_s = 0.03,
                   .decode_s = 0.4,
                   .ttft_s = 0.32,
                   .total_s = 0.8};
  return record;
}

double At(const Course& course, Phase phase) { return course[static_cast<size_t>(phase)]; }

TEST(PhasesTest, TheCourseOfARequestAddsUpToItsEndToEndTime) {
  const Course course = CourseOf(Record());
  EXPECT_DOUBLE_EQ(At(course, Phase::kQueue), 0.2);
  EXPECT_DOUBLE_EQ(At(course, Phase::kPrefill), 0.1);
  EXPECT_DOUBLE_EQ(At(course, Phase::kHandover), 0.05);
  EXPECT_DOUBLE_EQ(At(course, Phase::kDecodeWait), 0.03);
  EXPECT_DOUBLE_EQ(At(course, Phase::kDecode), 0.4);
  EXPECT_NEAR(At(course, Phase::kOther), 0.02, 1e-9);
  EXPECT_NEAR(At(course, Phase::kOutside), 0.02, 1e-9);
  EXPECT_NEAR(std::accumulate(course.begin(), course.end(), 0.0), 0.82, 1e-9);
}

TEST(PhasesTest, WithoutASummaryThereIsNoCourse) {
  RequestRecord record = Record();
  record.has_phases = false;
  EXPECT_EQ(CourseOf(record), Course{});
  record.token_s[0] = 11;
  EXPECT_EQ(LossOf(record, kTargets), Loss::kUntold);
}

TEST(PhasesTest, ALateFirstTokenIsBlamedOnWhatTookLongestBeforeIt) {
  const auto lost = [](double queue, double prefill, double router, double outside) {
    RequestRecord record = Record();
    record.phases.queue_s = queue;
    record.phases.prefill_s = prefill;
    record.phases.ttft_s = queue + prefill + router;
    const double shift = record.phases.ttft_s + outside - 0.34;
    for (double& token : record.token_s) token += shift;
    return LossOf(record, kTargets);
  };
  EXPECT_EQ(lost(0.6, 0.1, 0, 0), Loss::kQueue);
  EXPECT_EQ(lost(0.1, 0.6, 0, 0), Loss::kPrefill);
  EXPECT_EQ(lost(0.1, 0.1, 0.6, 0), Loss::kFirstOther);
  EXPECT_EQ(lost(0.1, 0.1, 0, 0.6), Loss::kOutside);
}

TEST(PhasesTest, ASlowPaceIsBlamedOnWhatExceededItsAllowance) {
  // The target of 0.1 s per token allows 0.4 s for the four gaps between the five tokens.
  const auto lost = [](double handover, double wait, double decode, double outside) {
    RequestRecord record = Record();
    record.phases.handover_exposed_s = handover;
    record.phases.decode_wait_s = wait;
    record.phases.decode_s = decode;
    record.token_s.back() = record.token_s[0] + handover + wait + decode + outside;
    return LossOf(record, kTargets);
  };
  EXPECT_EQ(lost(0.3, 0.1, 0.4, 0), Loss::kHandover);
  EXPECT_EQ(lost(0.1, 0.3, 0.4, 0), Loss::kDecodeWait);
  EXPECT_EQ(lost(0.1, 0.1, 0.8, 0), Loss::kDecode);
  EXPECT_EQ(lost(0.1, 0.1, 0.4, 0.5), Loss::kOutside);
}

TEST(PhasesTest, OfTwoTargetsTheOneThatWasOverrunByMoreIsBlamed) {
  RequestRecord record = Record();
  record.phases.queue_s = 0.6;
  record.phases.ttft_s = 0.72;
  // All tokens come 0.4 s later. So the TTFT is 0.74 s, which is 0.24 s above its target.
  for (double& token : record.token_s) token += 0.4;
  // The last token comes one more second later. So the four tokens after the first take 1.48 s. The
  // TPOT target allows 0.1 s for each, so they are 1.08 s late.
  record.token_s.back() += 1;
  record.phases.decode_s += 1;
  EXPECT_EQ(LossOf(record, kTargets), Loss::kDecode);
  record.token_s.back() -= 0.95;
  record.phases.decode_s -= 0.95;
  EXPECT_EQ(LossOf(record, kTargets), Loss::kQueue);
}

TEST(PhasesTest, WhatDidNotCompleteIsBlamedOnItsOutcome) {
  RequestRecord record;
  for (const auto& [outcome, loss] : {std::pair(Outcome::kRejected, Loss::kRejected),
                                      {Outcome::kTimedOut, Loss::kTimedOut},
                                      {Outcome::kFailed, Loss::kFailed},
                                      {Outcome::kWrongLength, Loss::kFailed},
                                      {Outcome::kStopped, Loss::kStopped},
                                      {Outcome::kNotSent, Loss::kStopped}}) {
    record.outcome = outcome;
    EXPECT_EQ(LossOf(record, kTargets), loss);
  }
}

TEST(PhasesTest, LossesAreCountedByQuartileOfPromptLength) {
  RunResult run;
  run.targets = {.ttft_s = 0.5, .tpot_s = 0.2};
  for (uint32_t i = 0; i < 8; ++i) {
    RequestRecord record = Record();
    record.prompt_tokens = 800 - 100 * i;
    // The requests with the three longest prompts are rejected.
    if (i < 3) record.outcome = Outcome::kRejected;
    if (i == 7) {  // The request with the shortest prompt waits.
      record.phases.queue_s = 2;
      record.phases.ttft_s = 2.12;
      for (double& token : record.token_s) token += 1.8;
    }
    if (i == 6) record.measured = false;
    run.records.push_back(record);
  }
  const LossTable table = LossesOf(run);
  EXPECT_EQ(table.lost, 4);
  EXPECT_THAT(table.offered, testing::ElementsAre(2, 2, 2, 1));
  EXPECT_EQ(table.Total(static_cast<size_t>(Loss::kRejected)), 3);
  EXPECT_THAT(table.counts[static_cast<size_t>(Loss::kRejected)], testing::ElementsAre(0, 0, 2, 1));
  EXPECT_THAT(table.counts[static_cast<size_t>(Loss::kQueue)], testing::ElementsAre(1, 0, 0, 0));
}

}  // namespace
}  // namespace baton
