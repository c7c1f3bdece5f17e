#include "tests/goodput/load/load.h"

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/load/router_connection.h"
#include "tests/goodput/load/unloaded.h"
#include "tests/goodput/results/expect_file.h"
#include "tests/goodput/results/run_checks.h"
#include "tests/goodput/results/verdict.h"
#include "tests/goodput/testing/timed_router.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Not;
using testing::StartsWith;

// The machine may be busy. So each assertion about time holds after a delay of any length, or has a
// large margin.

LoadSpec LoadOf(const TimedRouter& router) {
  LoadSpec spec;
  spec.endpoint = router.address();
  spec.workload = {.arrivals = {.kind = ArrivalKind::kUniform, .rate = 50},
                   .prompt_tokens = "uniform:4,40",
                   .output_tokens = "11"};
  spec.warmup = absl::Milliseconds(200);
  spec.duration = absl::Milliseconds(500);
  spec.request_timeout = absl::Seconds(60);
  spec.connect_timeout = absl::Seconds(30);
  return spec;
}

RunResult RunOf(const LoadSpec& spec) {
  StopFlag stop;
  absl::StatusOr<RunResult> run = RunLoad(spec, &stop, nullptr);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RunResult();
}

uint32_t CountOf(const RunResult& run, Outcome outcome) {
  uint32_t count = 0;
  for (const RequestRecord& record : run.records)
    count += record.measured && record.outcome == outcome;
  return count;
}

TEST(LoadTest, KnownLatenciesGiveTheVerdictsThatFollow) {
  TimedRouter router;
  router.ttft = absl::Milliseconds(60);
  // Nine of the ten gaps are short and one is 300 ms. So the mean pace is 30 ms, and W10 (the mean
  // of the longest tenth) is 300 ms.
  router.gaps = std::vector<absl::Duration>(10, absl::ZeroDuration());
  router.gaps[4] = absl::Milliseconds(300);
  LoadSpec spec = LoadOf(router);
  spec.targets = {.ttft_s = 20, .tpot_s = 20};
  RunResult run = RunOf(spec);
  const auto verdict_for = [&](double ttft_s, double tpot_s) {
    run.targets = {.ttft_s = ttft_s, .tpot_s = tpot_s};
    return ComputeVerdict(run);
  };
  Verdict verdict = verdict_for(20, 20);
  EXPECT_EQ(verdict.offered, 25u);  // 50 requests/s arrive in the window from 0.2 to 0.7 s.
  EXPECT_EQ(verdict.good, 25u);
  EXPECT_EQ(verdict.strict, 25u);
  EXPECT_DOUBLE_EQ(verdict.attainment, 1);
  EXPECT_NEAR(verdict.goodput, 50, 1e-9);
  EXPECT_NEAR(verdict.token_goodput, 550, 1e-9);
  EXPECT_THAT(verdict.ttft.p50, AllOf(Ge(0.06), Le(2)));
  EXPECT_THAT(verdict.tpot.p50, AllOf(Ge(0.02), Le(1)));
  EXPECT_THAT(verdict.w10.p50, AllOf(Ge(0.2), Le(2)));
  EXPECT_THAT(verdict.e2e.p50, AllOf(Ge(0.36), Le(4)));
  EXPECT_EQ(verdict_for(0.059, 20).good, 0u);  // Every first token comes after at least 60 ms.
  EXPECT_EQ(verdict_for(20, 0.01).good, 0u);
  // The mean time per token meets the target of 80 ms. But the longest tenth of the gaps takes 300
  // ms on average (W10), more than twice the target.
  verdict = verdict_for(20, 0.08);
  EXPECT_EQ(verdict.strict, 0u);
  EXPECT_EQ(verdict.with_phases, 25u);
  EXPECT_NEAR(verdict.mean_phases.prefill_s, 0.001234, 1e-9);
  EXPECT_EQ(run.server.model, "timed");
  EXPECT_FALSE(run.partial);
  for (const RequestRecord& record : run.records)
    EXPECT_THAT(record.prompt_tokens, AllOf(Ge(4u), Le(40u)));
}

TEST(LoadTest, WhateverBecomesOfRequestsIsCounted) {
  TimedRouter router;
  Mutex mutex;
  std::map<uint32_t, int> arrivals;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) -> grpc::Status {
    const uint32_t tokens = request.sampling().max_tokens();
    const uint32_t index = TimedRouter::IndexOf(request);
    {
      MutexLock lock(&mutex);
      ++arrivals[index];
    }
    switch (index % 8) {
      case 0:
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"};
      case 1:
        TimedRouter::Accept(request, writer);
        TimedRouter::WriteToken(request, writer, 0);
        return {grpc::StatusCode::UNAVAILABLE, "gone"};
      case 2:
        return router.Hang(context);
      case 3:
        return router.Answer(context, request, writer, tokens - 1);
      case 4:  // The first token never comes.
        TimedRouter::Accept(request, writer);
        TimedRouter::WriteToken(request, writer, 1);
        return router.Hang(context);
      case 5:  // The stream ends with status OK, but without tokens and without a Finished event.
        TimedRouter::Accept(request, writer);
        return grpc::Status::OK;
      case 6:  // Fails before the first event, where a client might retry silently.
        return {grpc::StatusCode::UNAVAILABLE, "no workers"};
      default:
        return router.Answer(context, request, writer, tokens);
    }
  };
  LoadSpec spec = LoadOf(router);
  spec.workload.arrivals.rate = 160;  // 80 requests in the window, ten for each of the 8 cases.
  spec.request_timeout = absl::Seconds(3);
  spec.tail = false;
  const RunResult run = RunOf(spec);
  const Verdict verdict = ComputeVerdict(run);
  EXPECT_EQ(verdict.offered, 80u);
  EXPECT_EQ(verdict.good, 10u);
  EXPECT_DOUBLE_EQ(verdict.attainment, 1.0 / 8);
  EXPECT_EQ(CountOf(run, Outcome::kRejected), 10u);
  EXPECT_EQ(CountOf(run, Outcome::kFailed), 40u);
  EXPECT_EQ(CountOf(run, Outcome::kTimedOut), 10u);
  EXPECT_EQ(CountOf(run, Outcome::kWrongLength), 10u);
  EXPECT_EQ(CountOf(run, Outcome::kCompleted), 10u);
  // No request is sent twice, not even during the warm-up.
  MutexLock lock(&mutex);
  EXPECT_EQ(arrivals.size(), run.records.size());
  EXPECT_EQ(arrivals.rbegin()->first, run.records.size() - 1);
  for (const auto& [index, times] : arrivals) EXPECT_EQ(times, 1) << "request " << index;
  for (const RequestRecord& record : run.records) {
    switch (record.index % 8) {
      case 1:
        EXPECT_EQ(record.status, "UNAVAILABLE");
        EXPECT_EQ(record.message, "gone");
        EXPECT_EQ(record.token_s.size(), 1u);
        break;
      case 2:
        EXPECT_GE(record.ended_s - record.scheduled_s, 2.9);
        break;
      case 3:
        EXPECT_EQ(record.message, "10 tokens came of 11 asked for");
        break;
      case 4:
        EXPECT_EQ(record.status, "DATA_LOSS");
        EXPECT_THAT(record.message, StartsWith("a token came with position "));
        break;
      case 5:
        EXPECT_EQ(record.message, "the server ended its stream before the answer was complete");
        break;
      case 6:
        EXPECT_EQ(record.status, "UNAVAILABLE");
        EXPECT_EQ(record.message, "no workers");
        break;
    }
  }
}

TEST(LoadTest, AStallIsSeenInFull) {
  using Clock = TimedRouter::Clock;
  TimedRouter router;
  Mutex mutex;
  CondVar changed;
  std::map<uint32_t, Clock::time_point> arrived;
  Clock::time_point stalled_until = Clock::time_point::min();
  constexpr uint32_t kFirstStalled = 20;
  // Request 20 makes the router stall for two seconds, which delays this request and all later
  // ones.
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) {
    {
      MutexLock lock(&mutex);
      const uint32_t index = TimedRouter::IndexOf(request);
      arrived[index] = Clock::now();
      if (index == kFirstStalled) stalled_until = Clock::now() + std::chrono::seconds(2);
      while (Clock::now() < stalled_until)
        changed.WaitFor(&mutex, absl::FromChrono(stalled_until - Clock::now()));
    }
    return router.Answer(context, request, writer, request.sampling().max_tokens());
  };
  LoadSpec spec = LoadOf(router);
  spec.workload.arrivals = {.kind = ArrivalKind::kPoisson, .rate = 40};
  spec.duration = absl::Seconds(3);
  const RunResult run = RunOf(spec);
  ASSERT_GT(run.records.size(), kFirstStalled);
  // Time at which the stall ended, in seconds of the load. For each request, the time at which it
  // was sent plus the time from its arrival to the end of the stall is a lower bound, because the
  // request arrived no earlier than it was sent. The largest bound is used.
  double end_s = 0;
  for (const RequestRecord& record : run.records) {
    if (!record.measured) continue;
    const auto left = std::chrono::duration<double>(stalled_until - arrived.at(record.index));
    end_s = std::max(end_s, record.sent_s + left.count());
  }
  const double begin_s = run.records[kFirstStalled].sent_s;
  EXPECT_THAT(end_s - begin_s, AllOf(Ge(1.9), Le(10)));
  int stalled = 0;
  double sum_s = 0;
  for (const RequestRecord& record : run.records) {
    if (record.index < kFirstStalled || record.scheduled_s >= end_s) continue;
    // A request that was sent later may still reach the router first, on another of its threads.
    if (arrived.at(record.index) < arrived.at(kFirstStalled)) continue;
    ++stalled;
    // The request was sent although the router was stalled, and waited for the rest of the stall.
    if (record.scheduled_s < end_s - 1) {
      EXPECT_LT(record.sent_s, end_s) << record.index;
    }
    EXPECT_GE(Ttft(record), end_s - record.scheduled_s - 1e-3) << record.index;
    sum_s += Ttft(record);
  }
  EXPECT_GT(stalled, 50);  // Expects 40 requests/s during 1.9 s, minus three standard deviations.
  // The stall of 2 s caught the requests at all times, so they waited for about 1 s on average. A
  // client that sends its next request only after an answer (closed loop) would have measured only
  // a few waits of 2 s.
  EXPECT_GT(sum_s / stalled, 0.8);
}

TEST(LoadTest, ArrivalsGoOnUntilTheLastMeasuredRequestHasEnded) {
  TimedRouter router;
  router.ttft = absl::Milliseconds(400);
  LoadSpec spec = LoadOf(router);
  spec.keep_token_ids = true;
  const RunResult run = RunOf(spec);
  double last_measured_s = 0, last_scheduled_s = 0;
  for (const RequestRecord& record : run.records) {
    if (record.measured) last_measured_s = std::max(last_measured_s, record.ended_s);
    last_scheduled_s = std::max(last_scheduled_s, record.scheduled_s);
    EXPECT_EQ(record.measured, record.scheduled_s >= 0.2 && record.scheduled_s < 0.7);
    EXPECT_EQ(record.measured && record.outcome != Outcome::kCompleted, false);
  }
  EXPECT_GT(last_scheduled_s, 1.0);  // The last measured request ends after 1.08 s.
  EXPECT_LT(last_scheduled_s, last_measured_s + 0.5);
  EXPECT_EQ(run.records.back().outcome, Outcome::kStopped);
  ASSERT_EQ(run.fingerprints.size(), run.records.size());
  EXPECT_EQ(run.records[12].token_ids.size(), 11u);
}

TEST(LoadTest, StoppingCancelsWhatIsOpenAndMeasuresWhatHasEnded) {
  TimedRouter router;
  StopFlag stop;
  std::atomic<int> hanging = 0;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) {
    if (TimedRouter::IndexOf(request) < 40 || TimedRouter::IndexOf(request) % 2 == 0)
      return router.Answer(context, request, writer, request.sampling().max_tokens());
    // The load stops at the 25th request that hangs, about one second after the first.
    if (++hanging == 25) stop.Stop();
    return router.Hang(context);
  };
  LoadSpec spec = LoadOf(router);
  spec.duration = absl::Hours(1);
  const absl::StatusOr<RunResult> run = RunLoad(spec, &stop, nullptr);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->partial);
  EXPECT_LT(run->records.size(), 10'000u);
  EXPECT_EQ(run->records[41].outcome, Outcome::kStopped);
  // The outcome of the first request that hangs is unknown, so the window ends before it.
  EXPECT_EQ(run->window_end_s, run->records[41].scheduled_s);
  const Verdict verdict = ComputeVerdict(*run);
  // At least 30 of the first 41 requests arrive after the 200 ms of warm-up.
  EXPECT_GE(verdict.offered, 30u);
  EXPECT_EQ(verdict.good, verdict.offered);
  EXPECT_NEAR(verdict.goodput, 50, 2);
}

TEST(LoadTest, WhatHadMissedItsTargetWhenTheLoadWasStoppedIsAMiss) {
  TimedRouter router;
  StopFlag stop;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) -> grpc::Status {
    const uint32_t index = TimedRouter::IndexOf(request);
    if (index % 4 == 1) return router.Hang(context);  // The request hangs before its first token.
    if (index % 4 == 3) {                             // The request hangs before its second token.
      TimedRouter::Accept(request, writer);
      TimedRouter::WriteToken(request, writer, 0);
      return router.Hang(context);
    }
    if (index == 100) stop.Stop();
    return router.Answer(context, request, writer, request.sampling().max_tokens());
  };
  LoadSpec spec = LoadOf(router);
  spec.duration = absl::Hours(1);
  // A request that hangs without a token has missed its TTFT target 0.3 s after its arrival. A
  // request that hangs after its first token has missed its TPOT target 0.3 s after that token,
  // because its ten gaps may take 0.03 s each.
  spec.targets = {.ttft_s = 0.3, .tpot_s = 0.03};
  const RunResult run = [&] {
    absl::StatusOr<RunResult> result = RunLoad(spec, &stop, nullptr);
    EXPECT_TRUE(result.ok()) << result.status();
    return *std::move(result);
  }();
  EXPECT_TRUE(run.partial);
  // The load stops after about 2 s. A request that was scheduled before 1.7 s, at least 0.3 s
  // earlier, has ended or missed a target.
  EXPECT_GT(run.window_end_s, 1);
  EXPECT_GT(CountOf(run, Outcome::kStopped), 20u);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.measured,
              record.scheduled_s >= run.window_begin_s && record.scheduled_s < run.window_end_s);
    if (record.measured && record.outcome == Outcome::kStopped) {
      EXPECT_GT(record.ended_s - record.scheduled_s, 0.3);
    }
    EXPECT_FALSE(record.measured && record.outcome == Outcome::kNotSent);
  }
}

TEST(LoadTest, AnEndpointThatIsNotThereIsNamedWithinTheLimit) {
  std::string address;
  {
    TimedRouter router;
    address = router.address();
  }
  LoadSpec spec;
  spec.endpoint = address;
  spec.connect_timeout = absl::Milliseconds(300);
  StopFlag stop;
  const absl::Time begun = absl::Now();
  const absl::Status status = RunLoad(spec, &stop, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("can't reach the router at " + address), HasSubstr("300ms")));
  EXPECT_LT(absl::Now() - begun, absl::Seconds(20));
  stop.Stop();
  spec.connect_timeout = absl::Hours(1);
  EXPECT_EQ(RunLoad(spec, &stop, nullptr).status().code(), absl::StatusCode::kCancelled);
}

TEST(LoadTest, ModelsThatAreNotServedAreNamed) {
  TimedRouter router;
  LoadSpec spec = LoadOf(router);
  spec.model = "other";
  StopFlag stop;
  const absl::Status status = RunLoad(spec, &stop, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it serves timed"));
}

TEST(LoadTest, TheKeyOfTheEnvironmentIsSentAndNeverShown) {
  TimedRouter router;
  router.key = "sk-secret";
  const LoadSpec spec = LoadOf(router);
  const auto why_not = [&] {
    StopFlag stop;
    return RunLoad(spec, &stop, nullptr).status().ToString();
  };
  unsetenv("BATON_API_KEY");
  EXPECT_THAT(why_not(),
              AllOf(StartsWith("UNAUTHENTICATED: "),
                    HasSubstr("takes no request without a key; set $BATON_API_KEY: no such key")));
  setenv("BATON_API_KEY", "sk-other", 1);
  EXPECT_THAT(why_not(),
              AllOf(HasSubstr("takes no request with the key in $BATON_API_KEY: no such"),
                    Not(HasSubstr("sk-"))));
  setenv("BATON_API_KEY", "sk-\nother", 1);
  EXPECT_THAT(why_not(), AllOf(HasSubstr("$BATON_API_KEY holds"), Not(HasSubstr("sk-"))));
  setenv("BATON_API_KEY", "sk-secret", 1);
  const RunResult run = RunOf(spec);
  EXPECT_FALSE(run.records.empty());
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
  }
  unsetenv("BATON_API_KEY");
}

TEST(LoadTest, SpecialAndUnknownTokensAreNoPrompt) {
  TimedRouter router;
  router.is_special = [](int32_t id) { return id < 3 || id == 777 || (id >= 4200 && id < 4230); };
  StopFlag stop;
  auto connection = RouterConnection::Open(
      {.endpoint = router.address(), .connect_timeout = absl::Seconds(30)}, &stop);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::vector<int32_t> tokens = (*connection)->OrdinaryTokens().value();
  EXPECT_EQ(tokens.size(), static_cast<size_t>(TimedRouter::kKnown - 34));
  for (const int32_t token : tokens) {
    EXPECT_FALSE(router.is_special(token));
    EXPECT_LT(token, TimedRouter::kKnown);
  }
}

TEST(LoadTest, TheSameLoadTwiceAsksTheSameAndAnotherAnswerIsFound) {
  TimedRouter router;
  LoadSpec spec = LoadOf(router);
  spec.tail = false;
  spec.keep_token_ids = true;
  const RunResult one = RunOf(spec);
  spec.channels = 1;
  const RunResult two = RunOf(spec);
  const ExpectFile expect = ExpectFile::Of(one.records, one.fingerprints);
  ASSERT_EQ(expect.size(), 34u);  // The file also holds the requests of the warm-up.
  EXPECT_EQ(expect.Compare(two.records, two.fingerprints).equal, 34u);
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) {
    v1::GenerateRequest other = request;
    if (TimedRouter::IndexOf(request) == 7) other.mutable_sampling()->set_seed(1);
    return router.Answer(context, other, writer, request.sampling().max_tokens());
  };
  const RunResult three = RunOf(spec);
  const ExpectResult result = expect.Compare(three.records, three.fingerprints);
  EXPECT_EQ(result.equal, 33u);
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_THAT(result.differences[0], StartsWith("request 7, token 0: "));
}

// Returns a load whose prompts are texts of 50 to 79 tokens, and one text longer than the context.
LoadSpec TextsOf(const TimedRouter& router, const ScratchFolder& folder) {
  std::string texts;
  for (int i = 0; i < 30; ++i) absl::StrAppend(&texts, std::string(50 + i, 'a'), "\n");
  absl::StrAppend(&texts, std::string(3000, 'b'), "\n");
  LoadSpec spec = LoadOf(router);
  spec.workload.prompt_tokens = "";
  spec.workload.prompts = folder.Write("prompts", texts);
  spec.tail = false;
  return spec;
}

TEST(LoadTest, TextsThatAreRefusedHaveTheirLength) {
  TimedRouter router;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) -> grpc::Status {
    if (TimedRouter::PromptTokens(request) >= 65)
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too long for now"};
    return router.Answer(context, request, writer, request.sampling().max_tokens());
  };
  const ScratchFolder folder;
  LoadSpec spec = TextsOf(router, folder);
  spec.duration = absl::Seconds(1);
  const Verdict verdict = ComputeVerdict(RunOf(spec));
  EXPECT_EQ(verdict.offered, 50u);
  EXPECT_GT(verdict.outcomes.at("rejected"), 10u);
  EXPECT_EQ(verdict.quartiles[0].shortest_tokens, 50u);
  EXPECT_EQ(verdict.quartiles[0].good, verdict.quartiles[0].offered);
  EXPECT_EQ(verdict.quartiles[3].good, 0u);
}

TEST(LoadTest, ATextLongerThanTheContextIsCut) {
  TimedRouter router;
  const ScratchFolder folder;
  LoadSpec spec = TextsOf(router, folder);
  spec.duration = absl::Seconds(1);
  const RunResult run = RunOf(spec);
  EXPECT_THAT(run.remarks, testing::Contains(HasSubstr(
                               " prompts and 0 answers were cut to the model's context of 2048")));
  uint32_t cut = 0;
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.message;
    cut += record.prompt_tokens == 2048 - 11;
    EXPECT_THAT(record.prompt_tokens, AllOf(Ge(50u), Le(2048u - 11)));
  }
  EXPECT_GE(cut, 1u);
}

TEST(LoadTest, ARouterThatCountsNoTokensIsLoadedAllTheSame) {
  TimedRouter router;
  router.counts_tokens = false;
  const ScratchFolder folder;
  const RunResult run = RunOf(TextsOf(router, folder));
  EXPECT_THAT(run.remarks, testing::Contains(HasSubstr("the server does not count tokens")));
  EXPECT_EQ(CountOf(run, Outcome::kCompleted), 25u);
}

TEST(LoadTest, TheModeTravelsAndComesBack) {
  TimedRouter router;
  LoadSpec spec = LoadOf(router);
  spec.mode = "colocated";
  spec.max_requests = 1;
  const RunResult run = RunOf(spec);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.mode, "colocated");
    if (record.measured) {
      EXPECT_EQ(record.served_mode, "colocated");
    }
  }
  EXPECT_THAT(ComputeVerdict(run).lost_to, IsEmpty());
  spec.mode = "both";
  EXPECT_THAT(std::string(CheckLoad(spec).message()),
              HasSubstr("mode 'both' does not exist; the modes are"));
}

TEST(LoadTest, TargetsTravelAndTheRouterTellsWhatTheyWereLostTo) {
  TimedRouter router;  // Reports a lost target if the request's TTFT target is 1 ms.
  router.ttft = absl::Milliseconds(20);
  LoadSpec spec = LoadOf(router);
  spec.targets = {.ttft_s = 0.001};
  const RunResult run = RunOf(spec);
  EXPECT_EQ(ComputeVerdict(run).lost_to.at("decode_wait"), 25u);
}

TEST(LoadTest, ProgressIsToldWhileItRuns) {
  TimedRouter router;
  LoadSpec spec = LoadOf(router);
  spec.duration = absl::Seconds(100);
  StopFlag stop;
  std::vector<RunProgress> told;
  const auto tell = [&](const RunProgress& progress) {
    told.push_back(progress);
    if (told.size() == 2) stop.Stop();
  };
  ASSERT_TRUE(RunLoad(spec, &stop, tell).ok());
  ASSERT_GE(told.size(), 2u);
  EXPECT_GT(told[0].sent, 10u);
  EXPECT_GE(told[0].elapsed_s, 1);
  EXPECT_NEAR(told[0].total_s, 100.2, 1e-9);
  EXPECT_GT(told[1].sent, told[0].sent);
  EXPECT_EQ(told[1].recent_rate, told[1].sent - told[0].sent);
  EXPECT_GT(told[1].measured, 0u);
  for (const RunProgress& one : told) {
    EXPECT_EQ(one.ended, one.sent - one.in_flight);
    EXPECT_LE(one.good, one.measured);
  }
}

TEST(UnloadedTest, IsTheLatencyOfOneRequestAtATime) {
  TimedRouter router;
  router.ttft = absl::Milliseconds(50);
  router.gaps = {absl::Milliseconds(10)};
  StopFlag stop;
  const UnloadedLatency unloaded = MeasureUnloaded(LoadOf(router), &stop).value();
  EXPECT_THAT(unloaded.ttft_s, AllOf(Ge(0.05), Le(1)));
  EXPECT_THAT(unloaded.tpot_s, AllOf(Ge(0.005), Le(0.5)));
  EXPECT_EQ(unloaded.output_tokens, 11u);
  router.on_generate = [](grpc::ServerContext*, const v1::GenerateRequest&, TimedRouter::Writer*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no workers");
  };
  EXPECT_THAT(std::string(MeasureUnloaded(LoadOf(router), &stop).status().message()),
              HasSubstr("UNAVAILABLE: no workers"));
}

TEST(UnloadedTest, TellsTheMedianAnswerAndMeasuresAShorterOne) {
  TimedRouter router;
  StopFlag stop;
  LoadSpec spec = LoadOf(router);
  spec.workload.output_tokens = "256";
  spec.workload.arrivals.rate = 0.01;  // No request falls into the window.
  const UnloadedLatency unloaded = MeasureUnloaded(spec, &stop).value();
  EXPECT_EQ(unloaded.output_tokens, 64u);
  EXPECT_EQ(unloaded.answer_tokens, 256u);
}

TEST(UnloadedTest, AsksTheTextsNearestToTheMedian) {
  TimedRouter router;
  const ScratchFolder folder;
  std::string texts;
  for (int i = 0; i < 60; ++i)
    // Seven of ten texts are long, so the median length is that of a long text.
    absl::StrAppend(&texts, std::string(i % 10 < 3 ? 3 : 60 + i, 'a'), "\n");
  LoadSpec spec = LoadOf(router);
  spec.workload.prompt_tokens = "";
  spec.workload.prompts = folder.Write("prompts", texts);
  Mutex mutex;
  std::vector<uint32_t> lengths;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) {
    MutexLock lock(&mutex);
    lengths.push_back(TimedRouter::PromptTokens(request));
    return router.Answer(context, request, writer, request.sampling().max_tokens());
  };
  StopFlag stop;
  const UnloadedLatency unloaded = MeasureUnloaded(spec, &stop).value();
  MutexLock lock(&mutex);
  // All probes have about the median length, 77 tokens.
  EXPECT_THAT(lengths, Each(AllOf(Ge(70u), Le(90u))));
  EXPECT_EQ(std::set<uint32_t>(lengths.begin(), lengths.end()).size(), 6u);
  EXPECT_THAT(unloaded.prompt_tokens, AllOf(Ge(70u), Le(90u)));
}

TEST(UnloadedTest, AnswersOfOneTokenHaveNoPace) {
  TimedRouter router;
  router.gaps = {absl::Milliseconds(10)};
  std::atomic<bool> any_longer = true;
  router.on_generate = [&](grpc::ServerContext* context, const v1::GenerateRequest& request,
                           TimedRouter::Writer* writer) {
    // Probes 1 and 4 get answers of 5 tokens, and the others of 1 token. Probe 0 is a warm-up, so
    // five probes count.
    const bool longer = any_longer && TimedRouter::IndexOf(request) % 3 == 1;
    return router.Answer(context, request, writer, longer ? 5 : 1);
  };
  LoadSpec spec = LoadOf(router);
  spec.workload.forced_length = false;
  StopFlag stop;
  EXPECT_THAT(MeasureUnloaded(spec, &stop)->tpot_s, AllOf(Ge(0.005), Le(0.5)));
  any_longer = false;
  EXPECT_EQ(MeasureUnloaded(spec, &stop)->tpot_s, 0);
}

RequestRecord Sent(double scheduled_s, double lag_s, double ttft_s) {
  return {.measured = true,
          .scheduled_s = scheduled_s,
          .sent_s = scheduled_s + lag_s,
          .token_s = {scheduled_s + ttft_s},
          .outcome = Outcome::kCompleted};
}

TEST(RunChecksTest, ALateClientMakesTheRunInvalid) {
  RunResult run{.targets = {.ttft_s = 0.2}, .window_begin_s = 10, .window_end_s = 110};
  for (int i = 0; i < 100; ++i) run.records.push_back(Sent(10 + i, 0.009, 0.1));
  CheckRun(&run);
  EXPECT_THAT(run.invalid, IsEmpty());
  EXPECT_THAT(run.remarks, IsEmpty());
  for (int i = 0; i < 2; ++i) run.records[i].sent_s += 0.002;
  CheckRun(&run);
  ASSERT_EQ(run.invalid.size(), 1u);
  EXPECT_THAT(run.invalid[0], HasSubstr("P99 11.00 ms, and 10.00 ms (5 % of the TTFT target)"));
}

TEST(RunChecksTest, AClientThatReadsLateIsRemarked) {
  RunResult run{.targets = {.ttft_s = 0.2}, .window_begin_s = 10, .window_end_s = 110};
  for (int i = 0; i < 100; ++i) {
    run.records.push_back(Sent(10 + i, 0.001, 0.1));
    run.records.back().has_phases = true;
    // The client measured a TTFT of 100 ms, and 91 ms of it passed in the router. After a lag of 1
    // ms, 8 ms are left for the network.
    run.records.back().phases.ttft_s = 0.091;
  }
  CheckRun(&run);
  EXPECT_THAT(run.remarks, IsEmpty());
  for (int i = 0; i < 2; ++i) run.records[i].phases.ttft_s = 0.07;
  CheckRun(&run);
  EXPECT_THAT(
      run.remarks,
      testing::ElementsAre(HasSubstr("up to 29.0 ms of a TTFT (P99) passed outside the router")));
  EXPECT_THAT(run.invalid, IsEmpty());
}

TEST(RunChecksTest, OtherTargetsAreOtherChecks) {
  RunResult run{.targets = {.ttft_s = 15}, .window_begin_s = 10, .window_end_s = 110};
  for (int i = 0; i < 100; ++i) {
    run.records.push_back(Sent(10 + i, 0.3, i < 50 ? 0.2 : 1));
    run.records.back().lost_to = "queue";
  }
  run.remarks = {"7 prompts and 0 answers were cut"};
  CheckRun(&run);
  EXPECT_THAT(run.invalid, IsEmpty());
  ASSERT_THAT(run.remarks, testing::SizeIs(2));
  EXPECT_THAT(run.remarks[1], HasSubstr("shorter than 25 TTFT targets"));
  JudgeBy({.ttft_s = 0.25}, &run);
  EXPECT_EQ(run.targets.ttft_s, 0.25);
  EXPECT_THAT(run.invalid,
              testing::ElementsAre(HasSubstr("and 12.50 ms (5 % of the TTFT target)")));
  EXPECT_THAT(run.remarks, testing::ElementsAre("7 prompts and 0 answers were cut",
                                                HasSubstr("100.0 % in the first half")));
  EXPECT_THAT(ComputeVerdict(run).lost_to, IsEmpty());
  JudgeBy({.ttft_s = 15}, &run);
  EXPECT_THAT(run.invalid, IsEmpty());
  EXPECT_THAT(run.remarks, testing::ElementsAre("7 prompts and 0 answers were cut",
                                                HasSubstr("shorter than 25 TTFT targets")));
}

TEST(RunChecksTest, OfAStoppedRunOtherTargetsLeaveOtherRequestsOpen) {
  RunResult run{.targets = {.ttft_s = 1}, .window_begin_s = 0, .window_end_s = 20, .partial = true};
  for (int i = 0; i < 20; ++i) run.records.push_back(Sent(i, 0, 0.1));
  for (const int i : {5, 15, 18}) {
    run.records[i].token_s.clear();
    run.records[i].outcome = Outcome::kStopped;
    run.records[i].ended_s = 18.5;
  }
  EndWindowAtStop(&run);
  EXPECT_EQ(run.window_end_s, 18);
  EXPECT_EQ(ComputeVerdict(run).offered, 18u);
  EXPECT_EQ(ComputeVerdict(run).good, 16u);
  JudgeBy({.ttft_s = 5}, &run);
  EXPECT_EQ(run.window_end_s, 15);
  EXPECT_EQ(ComputeVerdict(run).offered, 15u);
  EXPECT_EQ(ComputeVerdict(run).good, 14u);
}

TEST(RunChecksTest, WhatLimitsARunIsRemarked) {
  RunResult run{.targets = {.ttft_s = 2}, .window_begin_s = 1, .window_end_s = 21};
  for (int i = 0; i < 100; ++i) run.records.push_back(Sent(1 + i * 0.2, 0, i < 50 ? 1.5 : 3));
  CheckRun(&run);
  ASSERT_EQ(run.remarks.size(), 3u);
  EXPECT_THAT(run.remarks[0], HasSubstr("warm-up of 1.0 s is shorter than a mean request of 2.2"));
  EXPECT_THAT(run.remarks[1], HasSubstr("attainment 100.0 % in the first half of the window, 0.0"));
  EXPECT_THAT(run.remarks[2], HasSubstr("shorter than 25 TTFT targets"));
}

}  // namespace
}  // namespace baton
