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

v1::Timing TimingOf(const Times& t) {
  v1::Timing timing;
  timing.set_queue_us(1000 * t.queue);
  timing.set_prefill_us(1000 * t.prefill);
  timing.set_handover_exposed_us(1000 * t.exposed);
  timing.set_decode_wait_us(1000 * t.wait);
  timing.set_decode_us(1000 * t.decode);
  timing.set_ttft_us(1000 * t.ttft);
  timing.set_total_us(1000 * t.total);
  return timing;
}

v1::SloVerdict Judge(const Times& times, int ttft_ms, int tpot_ms, size_t tokens = 11) {
  return JudgeSlo({absl::Milliseconds(ttft_ms), absl::Milliseconds(tpot_ms)},
                  TimingOf({times.queue, times.prefill}), TimingOf(times), tokens);
}

TEST(SloVerdictTest, ATargetIsMetUpToItself) {
  const Times times = {10, 80, 5, 5, 190, 100, 300};  // TPOT: 200 ms over ten tokens.
  EXPECT_TRUE(Judge(times, 100, 20).met());
  EXPECT_TRUE(Judge(times, 100, 20).ttft_met());
  EXPECT_TRUE(Judge(times, 100, 20).tpot_met());
  EXPECT_EQ(Judge(times, 100, 20).lost_to(), v1::SLO_PHASE_UNSPECIFIED);
  EXPECT_FALSE(Judge(times, 99, 20).met());
  EXPECT_FALSE(Judge(times, 99, 20).ttft_met());
  EXPECT_TRUE(Judge(times, 99, 20).tpot_met());
  EXPECT_FALSE(Judge(times, 100, 19).met());
  EXPECT_TRUE(Judge(times, 100, 19).ttft_met());
  EXPECT_FALSE(Judge(times, 100, 19).tpot_met());
}

TEST(SloVerdictTest, OnlyWhatWasAskedForIsJudged) {
  const v1::Timing timing = TimingOf({10, 80, 5, 5, 190, 100, 300});
  const v1::SloVerdict ttft = JudgeSlo({absl::Milliseconds(1), std::nullopt}, timing, timing, 11);
  EXPECT_TRUE(ttft.has_ttft_met());
  EXPECT_FALSE(ttft.has_tpot_met());
  EXPECT_FALSE(ttft.met());
  const v1::SloVerdict tpot = JudgeSlo({std::nullopt, absl::Milliseconds(1)}, timing, timing, 11);
  EXPECT_FALSE(tpot.has_ttft_met());
  EXPECT_FALSE(tpot.tpot_met());
}

TEST(SloVerdictTest, AnAnswerOfOneTokenHasNoPaceToMiss) {
  EXPECT_TRUE(Judge({0, 10, 0, 0, 0, 10, 500}, 10, 1, 1).met());
  EXPECT_FALSE(Judge({0, 10, 0, 0, 0, 10, 500}, 10, 1, 2).met());
}

TEST(SloVerdictTest, ALostTtftIsThePrefillsWhenThatAloneWasTooLong) {
  EXPECT_EQ(Judge({500, 101, 0, 0, 0, 601, 700}, 100, 100).lost_to(), v1::SLO_PHASE_PREFILL);
  EXPECT_EQ(Judge({500, 100, 0, 0, 0, 600, 700}, 100, 100).lost_to(), v1::SLO_PHASE_QUEUE);
}

TEST(SloVerdictTest, ElseALostTtftIsTheLongerWaits) {
  EXPECT_EQ(Judge({50, 40, 0, 0, 0, 130, 700}, 100, 100).lost_to(), v1::SLO_PHASE_QUEUE);
  EXPECT_EQ(Judge({50, 40, 0, 0, 0, 141, 700}, 100, 100).lost_to(), v1::SLO_PHASE_HANDOVER);
  EXPECT_EQ(Judge({50, 40, 0, 0, 0, 140, 700}, 100, 100).lost_to(), v1::SLO_PHASE_QUEUE) << "equal";
}

TEST(SloVerdictTest, ALostTpotIsTheStepsWhenTheyAloneWereTooLong) {
  EXPECT_EQ(Judge({0, 0, 500, 0, 201, 0, 701}, 100, 20).lost_to(), v1::SLO_PHASE_DECODE);
  EXPECT_EQ(Judge({0, 0, 500, 0, 200, 0, 700}, 100, 20).lost_to(), v1::SLO_PHASE_HANDOVER);
}

TEST(SloVerdictTest, ElseALostTpotIsTheLongestWaits) {
  EXPECT_EQ(Judge({0, 0, 90, 80, 100, 0, 300}, 100, 20).lost_to(), v1::SLO_PHASE_HANDOVER);
  EXPECT_EQ(Judge({0, 0, 80, 90, 100, 0, 300}, 100, 20).lost_to(), v1::SLO_PHASE_DECODE_WAIT);
  EXPECT_EQ(Judge({0, 0, 10, 20, 100, 0, 300}, 100, 20).lost_to(), v1::SLO_PHASE_OTHER);
}

TEST(SloVerdictTest, OfTwoLostTargetsTheFirstTokensIsExplained) {
  EXPECT_EQ(Judge({500, 10, 0, 0, 900, 510, 1500}, 100, 20).lost_to(), v1::SLO_PHASE_QUEUE);
}

TEST(SloFromProtoTest, TargetsAreMillisecondsAboveNone) {
  v1::Slo slo;
  EXPECT_FALSE(SloFromProto(slo)->any());
  slo.set_tpot_ms(0.25);
  EXPECT_EQ(SloFromProto(slo)->tpot, absl::Microseconds(250));
  EXPECT_FALSE(SloFromProto(slo)->ttft.has_value());
  for (const double bad :
       {0.0, -1.0, 1.1e9, std::nan(""), std::numeric_limits<double>::infinity()}) {
    slo.set_ttft_ms(bad);
    EXPECT_EQ(SloFromProto(slo).status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(SloFromProto(slo).status().message(), HasSubstr("slo.ttft_ms is"));
  }
  slo.set_ttft_ms(1);
  slo.set_tpot_ms(-2);
  EXPECT_THAT(SloFromProto(slo).status().message(), HasSubstr("slo.tpot_ms is -2"));
}

// A worker is lost, and the time of a second attempt is added to the answer's phases. In `late`,
// this happens after the first token was shown; in `slow` and `waited`, before that.
TEST(SloVerdictTest, WhatALaterTryTookExplainsNoTtftAndAnEarlierOneNoTpot) {
  const LatencyTargets targets = {absl::Milliseconds(100), absl::Milliseconds(10)};
  const v1::Timing at_first = TimingOf({10, 60, 30, 0, 5});
  const v1::Timing late = TimingOf({1010, 120, 30, 0, 95, 110, 150});
  EXPECT_EQ(JudgeSlo(targets, at_first, late, 11).lost_to(), v1::SLO_PHASE_HANDOVER);
  const v1::Timing slow = TimingOf({10, 60, 31, 40, 45, 100, 230});
  EXPECT_EQ(JudgeSlo(targets, at_first, slow, 11).lost_to(), v1::SLO_PHASE_OTHER) << "49 ms";
  const v1::Timing waited = TimingOf({10, 60, 60, 40, 24, 100, 201});
  EXPECT_EQ(JudgeSlo(targets, at_first, waited, 11).lost_to(), v1::SLO_PHASE_DECODE_WAIT);
}

}  // namespace
}  // namespace baton
