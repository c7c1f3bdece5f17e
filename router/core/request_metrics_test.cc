#include "router/core/request_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/exposition.h"
#include "router/testing/core_harness.h"

namespace baton {
namespace {

const std::vector<TokenId> kPrompt = {5, 6, 7, 8};

class RequestMetricsTest : public testing::Test {
 protected:
  RequestMetricsTest() : harness(OptionsWith(&metrics)) { metrics.AddTo(&registry); }

  static RouterCoreOptions OptionsWith(RequestMetrics* metrics) {
    RouterCoreOptions options = CoreHarness::Options();
    options.metrics = metrics;
    options.max_queued = 1;
    options.client_buffer_tokens = 4;
    return options;
  }
  double Value(const std::string& sample, const std::map<std::string, std::string>& labels = {}) {
    const auto page = ParseExposition(registry.Text());
    EXPECT_TRUE(page.ok()) << page.status();
    const auto value = page->Value(sample, labels);
    EXPECT_TRUE(value) << sample;
    return value.value_or(-1);
  }
  double Ended(const std::string& code) {
    return Value("baton_router_requests_total", {{"mode", "disaggregated"}, {"code", code}});
  }
  double Lost(const std::string& phase) {
    return Value("baton_router_slo_missed_total", {{"phase", phase}});
  }
  CheckedRequest WithTargets(int ttft_ms, int tpot_ms, int tokens = 5) {
    CheckedRequest request = CoreHarness::Request(kPrompt, tokens);
    request.slo = {absl::Milliseconds(ttft_ms), absl::Milliseconds(tpot_ms)};
    return request;
  }

  RequestMetrics metrics;
  MetricRegistry registry;
  CoreHarness harness;
};

TEST_F(RequestMetricsTest, AnAnswerIsCountedWithItsTimes) {
  harness.AttachFour();
  harness.Arrive(kPrompt, 5);
  const LegKey prefill = harness.PrefillLeg();
  harness.Ticket(prefill);
  const LegKey decode = harness.DecodeLeg();
  harness.Reserve(decode);
  harness.Advance(absl::Milliseconds(300));
  harness.First(prefill);
  EXPECT_EQ(Value("baton_router_generated_tokens_total"), 1);
  harness.Advance(absl::Milliseconds(400));
  harness.Tokens(decode, 0, 5);
  harness.Finish(decode);
  const std::map<std::string, std::string> mode = {{"mode", "disaggregated"}};
  EXPECT_EQ(Ended("OK"), 1);
  EXPECT_EQ(Value("baton_router_time_to_first_token_seconds_sum", mode), 0.3);
  EXPECT_EQ(Value("baton_router_time_to_first_token_seconds_count", mode), 1);
  EXPECT_DOUBLE_EQ(Value("baton_router_time_per_output_token_seconds_sum", mode), 0.1);
  EXPECT_DOUBLE_EQ(Value("baton_router_request_duration_seconds_sum", mode), 0.7);
  const auto phase = [&](const char* name) {
    return Value("baton_router_request_phase_seconds_sum",
                 {{"mode", "disaggregated"}, {"phase", name}});
  };
  EXPECT_DOUBLE_EQ(phase("queue"), 1e-3);
  EXPECT_DOUBLE_EQ(phase("prefill"), 2e-3);
  EXPECT_DOUBLE_EQ(phase("handover_hidden"), 10e-6);
  EXPECT_DOUBLE_EQ(phase("handover_exposed"), 20e-6);
  EXPECT_DOUBLE_EQ(phase("decode_wait"), 30e-6);
  EXPECT_DOUBLE_EQ(phase("decode"), 40e-6);
  EXPECT_EQ(Value("baton_router_prompt_tokens_total"), 4);
  EXPECT_EQ(Value("baton_router_generated_tokens_total"), 5);
  EXPECT_EQ(Value("baton_router_request_prompt_tokens_sum"), 4);
  EXPECT_EQ(Value("baton_router_request_generated_tokens_bucket", {{"le", "4"}}), 0);
  EXPECT_EQ(Value("baton_router_request_generated_tokens_bucket", {{"le", "8"}}), 1);
  EXPECT_EQ(Value("baton_router_slo_requests_total", {{"verdict", "met"}}), 0) << "had no targets";
}

TEST_F(RequestMetricsTest, EveryEndIsCountedOnceByItsStatus) {
  harness.Arrive(kPrompt, 5);
  harness.Arrive(kPrompt, 5);  // Refused: the queue is full.
  EXPECT_EQ(Ended("RESOURCE_EXHAUSTED"), 1);
  harness.Tell(ClientCancelled{1});
  EXPECT_EQ(Ended("CANCELLED"), 1);
  harness.AttachFour();
  CheckedRequest several = CoreHarness::Request(kPrompt, 5);
  several.answers = 2;
  harness.core.Handle(Drain{}, harness.now);
  harness.Arrive(std::move(several));
  EXPECT_EQ(Ended("UNAVAILABLE"), 1) << "one call, whatever it wanted";
  EXPECT_EQ(Ended("OK"), 0);
}

TEST_F(RequestMetricsTest, ATokenThatComesTwiceCountsOnce) {
  harness.AttachFour();
  harness.Arrive(kPrompt, 5);
  const LegKey prefill = harness.PrefillLeg();
  harness.Ticket(prefill);
  harness.Reserve(harness.DecodeLeg());
  harness.First(prefill);
  harness.End(prefill, absl::UnavailableError("gone"));
  EXPECT_EQ(Value("baton_router_generated_tokens_total"), 1);
  harness.RunToEnd();
  EXPECT_EQ(Value("baton_router_generated_tokens_total"), 5);
  EXPECT_EQ(Value("baton_router_time_to_first_token_seconds_count", {{"mode", "disaggregated"}}),
            1);
}

TEST_F(RequestMetricsTest, ASlowClientIsCounted) {
  harness.AttachFour();
  const RequestKey key = harness.Arrive(kPrompt, 50);
  harness.clients.at(key).reads = false;
  const LegKey prefill = harness.PrefillLeg();
  harness.Ticket(prefill);
  const LegKey decode = harness.DecodeLeg();
  harness.Reserve(decode);
  harness.First(prefill);
  harness.Tokens(decode, 0, 20);
  EXPECT_EQ(Value("baton_router_slow_clients_total"), 0);
  harness.Advance(absl::Seconds(31));
  EXPECT_EQ(Value("baton_router_slow_clients_total"), 1);
}

TEST_F(RequestMetricsTest, WorkersAreCountedByStateUntilTheyAreForgotten) {
  const auto workers = [&](const char* role, const char* state) {
    return Value("baton_router_workers", {{"role", role}, {"state", state}});
  };
  harness.AttachFour();
  EXPECT_EQ(workers("prefill", "ready"), 2);
  EXPECT_EQ(workers("decode", "ready"), 2);
  harness.loads.at(harness.d1).set_draining(true);
  harness.Report(harness.d1);
  EXPECT_EQ(workers("decode", "ready"), 1);
  EXPECT_EQ(workers("decode", "draining"), 1);
  harness.Tell(WorkerDetached{harness.p1});
  EXPECT_EQ(workers("prefill", "lost"), 1);
  harness.Advance(absl::Seconds(2));
  harness.Report(harness.p2);
  harness.Advance(absl::Seconds(2));  // p1 is forgotten, and the decode workers are silent.
  EXPECT_EQ(workers("prefill", "lost"), 0);
  EXPECT_EQ(workers("prefill", "ready"), 1);
  EXPECT_EQ(workers("decode", "ready"), 0);
  EXPECT_EQ(workers("decode", "draining"), 0);
  EXPECT_EQ(workers("decode", "lost"), 2);
}

TEST_F(RequestMetricsTest, TheVerdictIsInTheSummaryAndCounted) {
  harness.AttachFour();
  const RequestKey met = harness.Arrive(WithTargets(1, 1));
  harness.RunToEnd();
  ASSERT_TRUE(harness.clients.at(met).summary.has_value());
  EXPECT_TRUE(harness.clients.at(met).summary->slo->met());
  EXPECT_EQ(Value("baton_router_slo_requests_total", {{"verdict", "met"}}), 1);
  EXPECT_EQ(Value("baton_router_slo_generated_tokens_total", {{"verdict", "met"}}), 5);

  const RequestKey late = harness.Arrive(WithTargets(100, 1));
  const LegKey prefill = harness.PrefillLeg();
  harness.Ticket(prefill);
  harness.First(prefill);
  harness.Advance(absl::Milliseconds(150));  // No decode worker reserves blocks.
  harness.FinishDecode(harness.DecodeLeg());
  EXPECT_EQ(harness.clients.at(late).summary->slo->lost_to, SloPhase::kHandover);
  EXPECT_EQ(harness.clients.at(late).summary->slo->ttft_met, false);
  EXPECT_EQ(harness.clients.at(late).summary->slo->tpot_met, true);
  EXPECT_EQ(Lost("handover"), 1);
  EXPECT_EQ(Value("baton_router_slo_requests_total", {{"verdict", "missed"}}), 1);

  const RequestKey without = harness.Arrive(kPrompt, 5);
  harness.RunToEnd();
  EXPECT_FALSE(harness.clients.at(without).summary->slo.has_value());
  EXPECT_EQ(Value("baton_router_slo_requests_total", {{"verdict", "met"}}), 1);
}

// The first token was late because no decode worker had free blocks. A later attempt waited even
// longer, in the queue.
TEST_F(RequestMetricsTest, AMissedTtftIsNotBlamedOnWhatCameAfterTheToken) {
  harness.AttachFour();
  const RequestKey key = harness.Arrive(WithTargets(100, 1));
  const LegKey prefill = harness.PrefillLeg();
  harness.Ticket(prefill);
  harness.First(prefill);
  harness.Advance(absl::Milliseconds(150));
  harness.Reserve(harness.DecodeLeg());
  harness.End(harness.DecodeLeg(), absl::UnavailableError("gone"));
  for (int i = 0; i < 20; ++i) {
    harness.Advance(absl::Milliseconds(50));
    harness.ReportAll();
  }
  harness.RunToEnd();
  ASSERT_TRUE(harness.clients.at(key).summary.has_value());
  EXPECT_GT(harness.clients.at(key).summary->timing.queue_us, 0u);
  EXPECT_EQ(harness.clients.at(key).summary->slo->lost_to, SloPhase::kHandover);
}

// gRPC sends a timeout rounded up, so the deadline passes at the client before it passes at the
// router.
TEST_F(RequestMetricsTest, AClientWhoseDeadlinePassesHasNotCancelled) {
  const auto ask = [&] {
    CheckedRequest request = WithTargets(1, 1);
    request.deadline = harness.now + absl::Milliseconds(1240);
    return harness.Arrive(std::move(request));
  };
  const RequestKey early = ask();
  harness.Advance(absl::Milliseconds(1200));
  harness.Tell(ClientCancelled{early});
  EXPECT_EQ(Ended("CANCELLED"), 1);
  EXPECT_EQ(Lost("failed"), 0);
  const RequestKey late = ask();
  harness.Advance(absl::Milliseconds(1234));
  harness.Tell(ClientCancelled{late});
  EXPECT_EQ(Ended("CANCELLED"), 1);
  EXPECT_EQ(Ended("DEADLINE_EXCEEDED"), 1);
  EXPECT_EQ(Lost("failed"), 1);
}

TEST_F(RequestMetricsTest, OfSeveralAnswersEachThatWasNotGivenHasMissed) {
  harness.Arrive(kPrompt, 5);  // Fills the queue, which holds only one request.
  CheckedRequest refused = WithTargets(1, 1);
  refused.answers = 3;
  harness.Arrive(std::move(refused));
  EXPECT_EQ(Lost("failed"), 3);
  harness.Tell(ClientCancelled{1});
  harness.AttachFour();
  CheckedRequest one = WithTargets(1, 1);
  one.answers = 1;
  const RequestKey key = harness.Arrive(std::move(one));
  const LegKey prefill = harness.PrefillLeg();
  harness.Ticket(prefill);
  const LegKey decode = harness.DecodeLeg();
  harness.Reserve(decode);
  harness.First(prefill);
  harness.Tokens(decode, 0, 3);
  harness.End(decode, absl::InvalidArgumentError("no"));
  for (int i = 0; i < 2; ++i) {
    harness.Advance(absl::Seconds(1));
    harness.ReportAll();
    harness.End(harness.PrefillLeg(), absl::InvalidArgumentError("no"));
  }
  ASSERT_TRUE(harness.clients.at(key).status.has_value());
  EXPECT_EQ(Lost("failed"), 4);
  EXPECT_EQ(Value("baton_router_slo_generated_tokens_total", {{"verdict", "missed"}}), 3);
}

TEST_F(RequestMetricsTest, ARequestThatFailsHasMissedAndOneThatWasCancelledIsNotJudged) {
  harness.Arrive(WithTargets(1, 1));
  harness.Arrive(WithTargets(1, 1));  // Refused: the queue is full.
  EXPECT_EQ(Lost("failed"), 1);
  harness.Tell(ClientCancelled{1});
  EXPECT_EQ(Lost("failed"), 1);
  EXPECT_EQ(Value("baton_router_slo_requests_total", {{"verdict", "missed"}}), 1);
}

}  // namespace
}  // namespace baton
