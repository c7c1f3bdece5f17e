#include "router/core/slo_verdict.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::HasSubstr;

// Times of one answer in milliseconds. The first token comes at `ttft`, the last at `total`.
struct Times {
  int queue, prefill, exposed, wait, decode, ttft, total;
};

PhaseMicros TimingOf(const Times& t) {
  PhaseMicros timing;
  timing.queue_us = 1000 * t.queue;
  timing.prefill_us = 1000 * t.prefill;
  timing.handover_exposed_us = 1000 * t.exposed;
  timing.decode_wait_us = 1000 * t.wait;
  timing.decode_us = 1000 * t.decode;
  timing.ttft_us = 1000 * t.ttft;
  timing.total_us = 1000 * t.total;
  return timing;
}

SloVerdict Judge(const Times& times, int ttft_ms, int tpot_ms, size_t tokens = 11) {
  return JudgeSlo({absl::Milliseconds(ttft_ms), absl::Milliseconds(tpot_ms)},
                  TimingOf({times.queue, times.prefill}), TimingOf(times), tokens);
}

TEST(SloVerdictTest, ATargetIsMetUpToItself) {
  const Times times = {10, 80, 5, 5, 190, 100, 300};  // TPOT: 200 ms over ten tokens.
  EXPECT_TRUE(Judge(times, 100, 20).met());
  EXPECT_EQ(Judge(times, 100, 20).ttft_met, true);
  EXPECT_EQ(Judge(times, 100, 20).tpot_met, true);
  EXPECT_EQ(Judge(times, 100, 20).lost_to, SloPhase::kUnspecified);
  EXPECT_FALSE(Judge(times, 99, 20).met());
  EXPECT_EQ(Judge(times, 99, 20).ttft_met, false);
  EXPECT_EQ(Judge(times, 99, 20).tpot_met, true);
  EXPECT_FALSE(Judge(times, 100, 19).met());
  EXPECT_EQ(Judge(times, 100, 19).ttft_met, true);
  EXPECT_EQ(Judge(times, 100, 19).tpot_met, false);
}

TEST(SloVerdictTest, OnlyWhatWasAskedForIsJudged) {
  const PhaseMicros timing = TimingOf({10, 80, 5, 5, 190, 100, 300});
  const SloVerdict ttft = JudgeSlo({absl::Milliseconds(1), std::nullopt}, timing, timing, 11);
  EXPECT_TRUE(ttft.ttft_met.has_value());
  EXPECT_FALSE(ttft.tpot_met.has_value());
  EXPECT_FALSE(ttft.met());
  const SloVerdict tpot = JudgeSlo({std::nullopt, absl::Milliseconds(1)}, timing, timing, 11);
  EXPECT_FALSE(tpot.ttft_met.has_value());
  EXPECT_EQ(tpot.tpot_met, false);
}

TEST(SloVerdictTest, AnAnswerOfOneTokenHasNoPaceToMiss) {
  EXPECT_TRUE(Judge({0, 10, 0, 0, 0, 10, 500}, 10, 1, 1).met());
  EXPECT_FALSE(Judge({0, 10, 0, 0, 0, 10, 500}, 10, 1, 2).met());
}

TEST(SloVerdictTest, ALostTtftIsThePrefillsWhenThatAloneWasTooLong) {
  EXPECT_EQ(Judge({500, 101, 0, 0, 0, 601, 700}, 100, 100).lost_to, SloPhase::kPrefill);
  EXPECT_EQ(Judge({500, 100, 0, 0, 0, 600, 700}, 100, 100).lost_to, SloPhase::kQueue);
}

TEST(SloVerdictTest, ElseALostTtftIsTheLongerWaits) {
  EXPECT_EQ(Judge({50, 40, 0, 0, 0, 130, 700}, 100, 100).lost_to, SloPhase::kQueue);
  EXPECT_EQ(Judge({50, 40, 0, 0, 0, 141, 700}, 100, 100).lost_to, SloPhase::kHandover);
  EXPECT_EQ(Judge({50, 40, 0, 0, 0, 140, 700}, 100, 100).lost_to, SloPhase::kQueue) << "equal";
}

TEST(SloVerdictTest, ALostTpotIsTheStepsWhenTheyAloneWereTooLong) {
  EXPECT_EQ(Judge({0, 0, 500, 0, 201, 0, 701}, 100, 20).lost_to, SloPhase::kDecode);
  EXPECT_EQ(Judge({0, 0, 500, 0, 200, 0, 700}, 100, 20).lost_to, SloPhase::kHandover);
}

TEST(SloVerdictTest, ElseALostTpotIsTheLongestWaits) {
  EXPECT_EQ(Judge({0, 0, 90, 80, 100, 0, 300}, 100, 20).lost_to, SloPhase::kHandover);
  EXPECT_EQ(Judge({0, 0, 80, 90, 100, 0, 300}, 100, 20).lost_to, SloPhase::kDecodeWait);
  EXPECT_EQ(Judge({0, 0, 10, 20, 100, 0, 300}, 100, 20).lost_to, SloPhase::kOther);
}

TEST(SloVerdictTest, OfTwoLostTargetsTheFirstTokensIsExplained) {
  EXPECT_EQ(Judge({500, 10, 0, 0, 900, 510, 1500}, 100, 20).lost_to, SloPhase::kQueue);
}

TEST(TargetsFromMsTest, TargetsAreMillisecondsAboveNone) {
  EXPECT_FALSE(TargetsFromMs(std::nullopt, std::nullopt)->any());
  const LatencyTargets targets = *TargetsFromMs(std::nullopt, 0.25);
  EXPECT_EQ(targets.tpot, absl::Microseconds(250));
  EXPECT_FALSE(targets.ttft.has_value());
  for (const double bad :
       {0.0, -1.0, 1.1e9, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const absl::Status status = TargetsFromMs(bad, 0.25).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("slo.ttft_ms is"));
  }
  EXPECT_THAT(TargetsFromMs(1, -2).status().message(), HasSubstr("slo.tpot_ms is -2"));
}

// A worker is lost, and the time of a second attempt is added to the answer's phases. In `late`,
// this happens after the first token was shown; in `slow` and `waited`, before that.
TEST(SloVerdictTest, WhatALaterTryTookExplainsNoTtftAndAnEarlierOneNoTpot) {
  const LatencyTargets targets = {absl::Milliseconds(100), absl::Milliseconds(10)};
  const PhaseMicros at_first = TimingOf({10, 60, 30, 0, 5});
  const PhaseMicros late = TimingOf({1010, 120, 30, 0, 95, 110, 150});
  EXPECT_EQ(JudgeSlo(targets, at_first, late, 11).lost_to, SloPhase::kHandover);
  const PhaseMicros slow = TimingOf({10, 60, 31, 40, 45, 100, 230});
  EXPECT_EQ(JudgeSlo(targets, at_first, slow, 11).lost_to, SloPhase::kOther) << "49 ms";
  const PhaseMicros waited = TimingOf({10, 60, 60, 40, 24, 100, 201});
  EXPECT_EQ(JudgeSlo(targets, at_first, waited, 11).lost_to, SloPhase::kDecodeWait);
}

}  // namespace
}  // namespace baton
