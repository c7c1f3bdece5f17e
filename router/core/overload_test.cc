#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/retry_after.h"
#include "router/core/callers.h"
#include "router/core/forecast.h"
#include "router/core/request.h"
#include "router/testing/router_core_fixture.h"

// Tests of what the router does when the workers have too much to do: turns of the callers,
// predictions, and refusals.
namespace baton {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1000);

// --- WorkSpeed, TokenPace, Forecast ---

TEST(WorkSpeedTest, CountsOnlyTimeInWhichThereIsMoreToDo) {
  WorkSpeed speed;
  absl::Time now = kStart;
  speed.SetBusy(true, 2, now);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(speed.PerWorker().has_value(), i >= 8) << i;
    now += absl::Milliseconds(125);
    speed.Done(50, now);
  }
  EXPECT_NEAR(*speed.PerWorker(), 200, 20);
  EXPECT_NEAR(*speed.Total(), 400, 40);
  const double before = *speed.PerWorker();
  speed.SetBusy(false, 2, now);
  speed.Done(10, now + absl::Seconds(100));
  EXPECT_EQ(*speed.PerWorker(), before);
  // A third worker is as fast as the others.
  speed.SetBusy(true, 3, now + absl::Seconds(200));
  EXPECT_NEAR(*speed.Total(), 3 * before, 1);
}

TEST(WorkSpeedTest, FollowsAChange) {
  WorkSpeed speed;
  absl::Time now = kStart;
  speed.SetBusy(true, 1, now);
  for (const int tokens : {100, 20}) {
    for (int i = 0; i < 600; ++i)
      speed.Done(static_cast<uint64_t>(tokens), now += absl::Milliseconds(100));
    EXPECT_NEAR(*speed.PerWorker(), 10 * tokens, tokens) << tokens;
  }
}

TEST(WorkSpeedTest, IsAboutTheSameBetweenResultsThatTakeLongerThanItRemembers) {
  // 40 tokens per second: a prompt of 4,000 tokens takes 100 s.
  WorkSpeed speed;
  absl::Time now = kStart;
  speed.SetBusy(true, 1, now);
  for (int i = 0; i < 6; ++i) speed.Done(4000, now += absl::Seconds(100));
  for (int i = 0; i < 10; ++i) {
    speed.SetBusy(true, 1, now += absl::Seconds(10));
    EXPECT_NEAR(*speed.PerWorker(), 40, 4) << i;
  }
}

TEST(WorkSpeedTest, AWorkerThatHangsIsNotSlow) {
  WorkSpeed speed;
  absl::Time now = kStart;
  speed.SetBusy(true, 1, now);
  for (int i = 0; i < 100; ++i) speed.Done(1000, now += absl::Milliseconds(333));
  speed.SetBusy(true, 1, now += absl::Minutes(1));
  EXPECT_GT(*speed.PerWorker(), 1000);
  EXPECT_LT(*speed.PerWorker(), 2000) << "for some seconds it could be slow";
  speed.Done(1000, now);
  EXPECT_GT(*speed.PerWorker(), 1000);
}

TEST(WorkSpeedTest, AWrongSpeedIsRaisedByOneWorkerThatIsFaster) {
  WorkSpeed speed;
  absl::Time now = kStart;
  speed.DoneAlone(1000, absl::Milliseconds(100));
  EXPECT_FALSE(speed.PerWorker());
  speed.SetBusy(true, 1, now);
  for (int i = 0; i < 10; ++i) speed.Done(10, now += absl::Seconds(1));
  speed.DoneAlone(1000, absl::Milliseconds(100));
  EXPECT_NEAR(*speed.PerWorker(), 10, 1) << "the workers have more to do, and are measured";
  speed.SetBusy(false, 1, now);
  EXPECT_FALSE(speed.Old(now + absl::Seconds(2)));
  EXPECT_TRUE(speed.Old(now + absl::Seconds(3)));
  speed.DoneAlone(1000, absl::ZeroDuration());
  speed.DoneAlone(1, absl::Milliseconds(100));
  EXPECT_NEAR(*speed.PerWorker(), 10, 1);
  speed.DoneAlone(1000, absl::Milliseconds(100));
  EXPECT_NEAR(*speed.PerWorker(), 5000, 1);
}

TEST(TokenPaceTest, IsTheTimeBetweenTwoTokensOfASequence) {
  TokenPace pace;
  absl::Time now = kStart;
  EXPECT_FALSE(pace.PerToken(now));
  pace.Generating(8, now);
  for (int step = 0; step < 100; ++step) {
    now += absl::Milliseconds(50);
    for (int i = 0; i < 8; ++i) pace.Token(now);
  }
  EXPECT_NEAR(absl::ToDoubleMilliseconds(*pace.PerToken(now)), 50, 3);
  pace.Generating(-7, now);
  EXPECT_FALSE(pace.PerToken(now)) << "one sequence alone says nothing about many";
}

TEST(ForecastTest, AnswersAreExpectedToBeAsLongAsTheLatestOnes) {
  Forecast forecast;
  EXPECT_EQ(forecast.AnswerTokens(500), 500);
  for (int i = 0; i < 100; ++i) forecast.AnswerDone(30, 1000);  // They stop by themselves.
  EXPECT_EQ(forecast.AnswerTokens(0), 30);
  EXPECT_EQ(forecast.AnswerTokens(10), 10);
  EXPECT_EQ(forecast.AnswerTokens(1000), 30);
  for (int i = 0; i < 1000; ++i) forecast.AnswerDone(i % 2 ? 10 : 90, i % 2 ? 10 : 90);
  EXPECT_NEAR(forecast.AnswerTokens(90), 90, 2) << "they use all that they may";
  EXPECT_NEAR(forecast.AnswerTokens(10), 10, 1);
}

TEST(ForecastTest, NothingIsPredictedBeforeASpeedIsKnown) {
  Forecast forecast;
  EXPECT_EQ(forecast.TimeFor({1e9, 1e9}), absl::ZeroDuration());
  EXPECT_EQ(forecast.OwnTime(1e9, 1e9, kStart), absl::ZeroDuration());
  EXPECT_FALSE(forecast.PromptTokensIn(absl::Seconds(1)));
}

// --- Callers ---

class CallersTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const CheckedRequest> Checked() {
    CheckedRequest checked;
    checked.prompt = {1};
    return std::make_shared<const CheckedRequest>(std::move(checked));
  }
  CallerMetrics metrics;
  Callers callers{CallerLimits(), &metrics};
  Request request{1, Checked(), 0, AnswerSoFar(1, SamplingOptions(), {}, std::nullopt, 10)};
};

TEST_F(CallersTest, WhoComesNewHasNoCreditAndNoDebt) {
  Caller* const heavy = callers.Join("heavy");
  request.caller = heavy;
  callers.BeginsToWait(heavy, std::nullopt);
  callers.Began(request, 100);
  EXPECT_EQ(heavy->Turn(0), 75u);
  callers.Charge(request, 60);
  EXPECT_EQ(heavy->Turn(0), 60u + 30u) << "60 of the expected tokens are computed now";
  callers.Charge(request, 1000);
  callers.Ended(request);
  EXPECT_EQ(heavy->Turn(0), 1060u);
  Caller* const fresh = callers.Join("fresh");
  callers.BeginsToWait(fresh, heavy->charged);
  EXPECT_EQ(fresh->charged, 1060u);
  // The debt stays while no other caller has had as much.
  callers.Leave(heavy);
  EXPECT_EQ(callers.size(), 2u);
  EXPECT_EQ(callers.Join("heavy")->charged, 1060u);
}

TEST_F(CallersTest, TheNumberOfRememberedNamesIsBounded) {
  for (int i = 0; i < 20000; ++i) {
    request.caller = callers.Join(absl::StrCat("caller ", i));
    callers.Charge(request, static_cast<uint64_t>(i) + 1);
    callers.Leave(request.caller);
    ASSERT_LE(callers.size(), Callers::kMaxIdle + 1);
  }
  EXPECT_EQ(callers.Join("caller 19999")->charged, 20000u) << "who had the most is remembered";
}

// --- The core ---

class OverloadedCoreTest : public ::testing::Test {
 protected:
  // One worker of each role. The prefill worker takes `prompts` prompts at a time.
  void Start(RouterCoreOptions options, int prompts = 2) {
    options.max_prompts_per_worker = prompts;
    hub_ = std::make_unique<CoreHarness>(std::move(options));
    hub_->Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
    decode_ = hub_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  }
  RequestKey Arrive(const std::string& caller, int prompt,
                    absl::Duration deadline = absl::InfiniteDuration(), int max_tokens = 2) {
    CheckedRequest request = CoreHarness::Request(Prompt(prompt), max_tokens);
    request.request_id = absl::StrCat(caller, " ", ++requests_);
    request.caller = caller;
    request.deadline = hub_->now + deadline;
    return hub_->Arrive(std::move(request));
  }
  // Answers the prompt that the prefill worker got first. Returns its caller; "" if it has none.
  std::string ServeOne(absl::Duration prefill) {
    hub_->Advance(prefill);
    hub_->ReportAll();
    for (const auto& [key, leg] : hub_->legs) {
      if (!leg.prefill) continue;
      const std::string id = leg.prefill_request.request_id();
      hub_->RunToEnd(key);
      return id.substr(0, id.find(' '));
    }
    return "";
  }
  const absl::Status& StatusOf(RequestKey key) { return *hub_->clients.at(key).status; }

  std::unique_ptr<CoreHarness> hub_;
  AttachKey decode_ = 0;
  int requests_ = 0;
};

TEST_F(OverloadedCoreTest, CallersTakeTurnsByTokens) {
  Start(CoreHarness::Options());
  for (int i = 0; i < 60; ++i) Arrive("many", 100);
  for (int i = 0; i < 10; ++i) Arrive("few", 100);
  for (int i = 0; i < 10; ++i) Arrive("long", 1000);
  std::map<std::string, int> served;
  for (int i = 0; i < 22; ++i) ++served[ServeOne(absl::ZeroDuration())];
  // Two requests of `many` ran before the others came.
  EXPECT_GE(served["few"], 9);
  EXPECT_LE(served["long"], 2);
  EXPECT_LE(served["many"], 13);
}

// All callers have had as much, so the one whose next prompt is short is next.
TEST_F(OverloadedCoreTest, AShortPromptOfANewCallerIsBeforeLongOnesOfOthers) {
  Start(CoreHarness::Options());
  for (int i = 0; i < 10; ++i) Arrive(absl::StrCat("long", i), 1000);
  Arrive("short", 20);
  std::vector<std::string> order;
  for (int i = 0; i < 3; ++i) order.push_back(ServeOne(absl::ZeroDuration()));
  EXPECT_EQ(order[2], "short") << "two long ones ran before it came";
}

// The prefill worker has a second of work, and prompts stay in the queue. But it would compute a
// prompt first whose turn is earlier, so such a prompt need not wait in the queue.
TEST_F(OverloadedCoreTest, AWorkerWithMuchToDoGetsThePromptsThatItComputesFirst) {
  Start(CoreHarness::Options(), 64);
  for (int i = 0; i < 10; ++i) Arrive(absl::StrCat("long", i), 4000);
  for (int i = 0; i < 5; ++i) ServeOne(absl::Seconds(1));
  for (int i = 10; i < 20; ++i) Arrive(absl::StrCat("long", i), 4000);
  for (int i = 0; i < 10; ++i) ServeOne(absl::Seconds(1));
  ASSERT_EQ(hub_->legs.size(), 1u) << "the long prompt that the worker computes";
  const auto at_worker = [&](const std::string& caller) {
    return std::count_if(hub_->legs.begin(), hub_->legs.end(), [&](const auto& leg) {
      return leg.second.prefill_request.request_id().starts_with(caller + " ");
    });
  };
  Arrive("short", 20);
  EXPECT_EQ(at_worker("short"), 1);
  // The worker computes several of these before the long prompt, but not all of them.
  for (int i = 0; i < 20; ++i) Arrive("middle", 500);
  EXPECT_GE(at_worker("middle"), 2);
  EXPECT_LE(at_worker("middle"), 8);
}

// Each time, the short prompt would be first if its caller had had nothing before. All eleven
// callers get equal shares, so the long one has to wait for about 200 short ones.
TEST_F(OverloadedCoreTest, CallersThatComeAgainDoNotPassALongPromptWithoutEnd) {
  Start(CoreHarness::Options(), 1);
  Arrive("first", 100);
  const RequestKey late = Arrive("long", 2000);
  int served = 0;
  for (; served < 1000 && !hub_->clients.at(late).status; ++served) {
    Arrive(absl::StrCat("short", served % 10), 100);
    ServeOne(absl::Milliseconds(20));
  }
  ASSERT_TRUE(hub_->clients.at(late).status) << "it still waits";
  EXPECT_TRUE(StatusOf(late).ok()) << StatusOf(late);
  EXPECT_GT(served, 100) << "the others have shares too";
}

TEST_F(OverloadedCoreTest, ACallerHasLimitsOfItsOwn) {
  RouterCoreOptions options = CoreHarness::Options();
  options.per_caller = {.queued = 3, .running = 1};
  Start(options);
  std::vector<RequestKey> many;
  for (int i = 0; i < 5; ++i) many.push_back(Arrive("many", 5));
  EXPECT_EQ(hub_->legs.size(), 1u) << "one runs, though the worker takes two";
  ASSERT_TRUE(hub_->clients.at(many[4]).status) << "three wait";
  EXPECT_EQ(StatusOf(many[4]).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(StatusOf(many[4]).message()),
              HasSubstr("this caller has 3 requests in the queue; the limit of each caller is 3"));
  EXPECT_TRUE(RetryAfter(StatusOf(many[4])));
  const RequestKey other = Arrive("other", 5);
  EXPECT_EQ(hub_->legs.size(), 2u) << "another caller has places of its own";
  EXPECT_FALSE(hub_->clients.at(other).status);
  for (int i = 0; i < 5; ++i) ServeOne(absl::ZeroDuration());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(hub_->clients.at(many[i]).status) << i;
    EXPECT_TRUE(StatusOf(many[i]).ok()) << i;
  }
}

TEST_F(OverloadedCoreTest, ACallerThatHasHadItsTokensIsToldWhenToComeAgain) {
  RouterCoreOptions options = CoreHarness::Options();
  options.per_caller.tokens_per_minute = 120;
  Start(options);
  const RequestKey first = Arrive("a", 150);
  EXPECT_FALSE(hub_->clients.at(first).status) << "the allowance may be overdrawn once";
  EXPECT_TRUE(hub_->clients.at(Arrive("a", 5)).status) << "what runs counts";
  ServeOne(absl::ZeroDuration());
  EXPECT_TRUE(StatusOf(first).ok());
  // The prompt and two tokens were computed: 32 too many, which come back in 16 s.
  const RequestKey refused = Arrive("a", 5);
  ASSERT_TRUE(hub_->clients.at(refused).status);
  EXPECT_THAT(std::string(StatusOf(refused).message()), HasSubstr("120 per minute"));
  ASSERT_TRUE(RetryAfter(StatusOf(refused)));
  EXPECT_GT(*RetryAfter(StatusOf(refused)), absl::Seconds(16 * 0.75));
  EXPECT_LT(*RetryAfter(StatusOf(refused)), absl::Seconds(17 * 1.25));
  EXPECT_FALSE(hub_->clients.at(Arrive("b", 5)).status) << "another caller";
  hub_->Advance(absl::Seconds(17));
  hub_->ReportAll();
  EXPECT_FALSE(hub_->clients.at(Arrive("a", 5)).status);
}

TEST_F(OverloadedCoreTest, RequestsThatWaitCountForTheTokensPerMinute) {
  RouterCoreOptions options = CoreHarness::Options();
  options.per_caller.tokens_per_minute = 500;
  Start(options, 1);
  int refused = 0;
  for (int i = 0; i < 20; ++i) refused += hub_->clients.at(Arrive("a", 100)).status.has_value();
  EXPECT_GE(refused, 14);
  EXPECT_LE(refused, 15);
  // The answers of one request are admitted together, as a prompt with more tokens would be.
  CheckedRequest several = CoreHarness::Request(Prompt(300), 2);
  several.caller = "b";
  several.answers = 4;
  EXPECT_FALSE(hub_->clients.at(hub_->Arrive(std::move(several))).status);
}

TEST(CallerMetricsTest, OnlyTheFirstCallersHaveCountersOfTheirOwn) {
  CallerMetrics metrics;
  for (int i = 0; i < 100; ++i) metrics.Of(absl::StrCat("caller ", i)).tokens.Add(1);
  metrics.Of("caller 7").tokens.Add(10);
  const auto values = metrics.Values(&CallerMetrics::One::tokens);
  EXPECT_EQ(values.size(), CallerMetrics::kNames + 1);
  for (const auto& [name, value] : values) {
    if (name == CallerMetrics::kOther) {
      EXPECT_EQ(value, 100 - CallerMetrics::kNames);
    }
    if (name == "caller 7") {
      EXPECT_EQ(value, 11);
    }
  }
}

TEST_F(OverloadedCoreTest, ACallerThatFillsTheQueueMakesPlaceForOthers) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queued = 10;
  Start(options);
  std::vector<RequestKey> many;
  for (int i = 0; i < 13; ++i) many.push_back(Arrive("many", 5));
  ASSERT_TRUE(hub_->clients.at(many[12]).status) << "two run, ten wait";
  EXPECT_THAT(std::string(StatusOf(many[12]).message()),
              HasSubstr("the queue of 10 requests is full"));
  const RequestKey other = Arrive("other", 5);
  EXPECT_FALSE(hub_->clients.at(other).status);
  ASSERT_TRUE(hub_->clients.at(many[11]).status)
      << "the newest request of the caller with the most";
  EXPECT_EQ(StatusOf(many[11]).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(StatusOf(many[11])));
  EXPECT_FALSE(hub_->clients.at(many[10]).status);
}

TEST_F(OverloadedCoreTest, ARequestThatIsRefusedItselfTakesNobodysPlace) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queued = 20;
  Start(options);
  for (int i = 0; i < 20; ++i) Arrive("many", 100);
  for (int i = 0; i < 10; ++i) ServeOne(absl::Milliseconds(300));
  std::vector<RequestKey> many;
  while (hub_->core.queued() < 20) many.push_back(Arrive("many", 100));
  const RequestKey hasty = Arrive("hasty", 100, absl::Milliseconds(1));
  ASSERT_TRUE(hub_->clients.at(hasty).status);
  EXPECT_THAT(std::string(StatusOf(hasty).message()), HasSubstr("the answer would end in about"));
  for (const RequestKey one : many) EXPECT_FALSE(hub_->clients.at(one).status);
}

// The time without workers counts for --pair-wait, and not for --max-queue-wait.
TEST_F(OverloadedCoreTest, RequestsThatWaitedForWorkersAreServedWhenTheseComeBack) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Seconds(20);
  options.pair_wait = absl::Seconds(60);
  Start(options);
  hub_->Tell(WorkerDetached{decode_});
  hub_->closed[decode_] = absl::OkStatus();
  const RequestKey patient = Arrive("a", 10);
  for (int i = 0; i < 40; ++i) {
    hub_->Advance(absl::Seconds(1));
    hub_->ReportAll();
  }
  hub_->Attach(v1::WORKER_ROLE_DECODE, "d2:1", 12, {1});
  ASSERT_FALSE(hub_->clients.at(patient).status) << StatusOf(patient);
  ServeOne(absl::ZeroDuration());
  ASSERT_TRUE(hub_->clients.at(patient).status);
  EXPECT_TRUE(StatusOf(patient).ok()) << StatusOf(patient);
}

// The worker becomes so slow that no answer would end in time, and then as fast as before. A
// request must run again, since nothing else shows how fast it is.
TEST_F(OverloadedCoreTest, AWorkerThatWasSlowForSomeTimeIsUsedAgain) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Minutes(10);
  Start(options);
  for (int i = 0; i < 20; ++i) Arrive("a", 100);
  while (!hub_->legs.empty()) ServeOne(absl::Seconds(2));
  const auto arrive = [this] { return Arrive("a", 100, absl::Seconds(1)); };
  EXPECT_TRUE(hub_->clients.at(arrive()).status) << "the answer would take 2 s";
  hub_->Advance(absl::Seconds(3));
  hub_->ReportAll();
  const RequestKey first = arrive();
  ASSERT_FALSE(hub_->clients.at(first).status) << StatusOf(first);
  EXPECT_TRUE(hub_->clients.at(arrive()).status) << "one is enough";
  ServeOne(absl::Milliseconds(50));
  EXPECT_TRUE(StatusOf(first).ok());
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(hub_->clients.at(arrive()).status) << i;
}

TEST_F(OverloadedCoreTest, ARequestThatWouldWaitForTooLongIsRefusedAtOnce) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Seconds(5);
  Start(options);
  for (int i = 0; i < 30; ++i) Arrive("a", 100);
  for (int i = 0; i < 10; ++i) ServeOne(absl::Milliseconds(300));  // About 3 prompts per second.
  int waits = 0;
  absl::Status refusal;
  while (refusal.ok()) {
    const RequestKey key = Arrive("a", 100);
    if (hub_->clients.at(key).status) {
      refusal = StatusOf(key);
    } else {
      ASSERT_LT(++waits, 100);
    }
  }
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()),
              HasSubstr("overloaded: the request would wait for about "));
  const auto again = RetryAfter(refusal);
  ASSERT_TRUE(again);
  EXPECT_GE(*again, absl::Milliseconds(750));
  EXPECT_LE(*again, absl::Seconds(75));
  EXPECT_NEAR(static_cast<double>(hub_->core.queued()), 5 / 0.3, 4);
  // Another caller has its own share of the time.
  const RequestKey other = Arrive("b", 100);
  EXPECT_FALSE(hub_->clients.at(other).status);
}

// Before the speed of the workers is known, nothing holds prompts back. But workers take turns too,
// so a short prompt does not wait for the long ones of other callers that a worker has.
TEST_F(OverloadedCoreTest, LongPromptsOfOthersAtAWorkerDoNotRefuseAShortOne) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Seconds(5);
  Start(options, 64);
  for (int i = 0; i < 20; ++i) Arrive(absl::StrCat("long", i), 4000);
  for (int i = 0; i < 8; ++i) ServeOne(absl::Seconds(1));
  ASSERT_EQ(hub_->legs.size(), 12u);
  const RequestKey late = Arrive("long0", 4000);
  ASSERT_TRUE(hub_->clients.at(late).status) << "its caller has had one";
  EXPECT_THAT(std::string(StatusOf(late).message()), HasSubstr("the request would wait for about"));
  const RequestKey short_one = Arrive("short", 20);
  EXPECT_FALSE(hub_->clients.at(short_one).status) << StatusOf(short_one);
}

// Requests of one caller don't pass each other at the workers.
TEST_F(OverloadedCoreTest, ARequestWaitsForItsCallersPromptsAtTheWorkers) {
  Start(CoreHarness::Options(), 64);
  for (int i = 0; i < 20; ++i) Arrive("first", 1000);
  for (int i = 0; i < 20; ++i) ServeOne(absl::Milliseconds(500));  // 2,000 tokens per second.
  ASSERT_TRUE(hub_->legs.empty());
  Arrive("a", 4000);  // Takes 2 s.
  ASSERT_EQ(hub_->legs.size(), 1u);
  const RequestKey late = Arrive("a", 20, absl::Seconds(1));
  ASSERT_TRUE(hub_->clients.at(late).status);
  EXPECT_THAT(std::string(StatusOf(late).message()), HasSubstr("the answer would end in about"));
  const RequestKey other = Arrive("b", 20, absl::Seconds(1));
  EXPECT_FALSE(hub_->clients.at(other).status) << StatusOf(other);
}

// One request that can hardly wait does not shorten the time that the same caller's other requests
// may wait. (Behind a load balancer, all clients are one caller.)
TEST_F(OverloadedCoreTest, AShortDeadlineDoesNotDecideForOtherRequests) {
  Start(CoreHarness::Options());
  for (int i = 0; i < 30; ++i) Arrive("a", 100, absl::Minutes(1));
  for (int i = 0; i < 10; ++i) ServeOne(absl::Milliseconds(300));  // About 3 prompts per second.
  bool refused = false;
  for (int ms = 1; ms < 2000 && !refused; ++ms) {
    refused = hub_->clients.at(Arrive("a", 100, absl::Milliseconds(ms))).status.has_value();
  }
  EXPECT_TRUE(refused);
  // Their predicted wait is 6 s and more.
  for (int i = 0; i < 10; ++i) {
    const RequestKey patient = Arrive("a", 100, absl::Minutes(1));
    EXPECT_FALSE(hub_->clients.at(patient).status) << StatusOf(patient);
  }
}

TEST_F(OverloadedCoreTest, NoOneWaitsLongerThanMaxQueueWait) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Seconds(5);
  options.leg_silence_limit = absl::Seconds(100);
  Start(options);
  Arrive("a", 5);
  Arrive("a", 5);
  const RequestKey waits = Arrive("a", 5);
  for (int i = 0; i < 49; ++i) {
    hub_->Advance(absl::Milliseconds(100));
    hub_->ReportAll();
  }
  EXPECT_FALSE(hub_->clients.at(waits).status);
  hub_->Advance(absl::Milliseconds(100));
  ASSERT_TRUE(hub_->clients.at(waits).status);
  EXPECT_EQ(StatusOf(waits).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(StatusOf(waits).message()), HasSubstr("the request has waited for 5s"));
  EXPECT_TRUE(RetryAfter(StatusOf(waits)));
}

TEST_F(OverloadedCoreTest, ARequestThatCanNotEndBeforeItsDeadlineIsRefused) {
  Start(CoreHarness::Options());
  for (int i = 0; i < 40; ++i) Arrive("a", 100);
  for (int i = 0; i < 10; ++i) ServeOne(absl::Milliseconds(300));
  const RequestKey late = Arrive("a", 100, absl::Seconds(8));  // About 9 s of work come first.
  ASSERT_TRUE(hub_->clients.at(late).status);
  EXPECT_EQ(StatusOf(late).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(StatusOf(late)));
  const RequestKey patient = Arrive("a", 100, absl::Seconds(60));
  EXPECT_FALSE(hub_->clients.at(patient).status);
}

// After a second with a predicted wait of more than half of the limit.
TEST_F(OverloadedCoreTest, TheNewestGoesFirstOnceTheWaitIsLong) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Seconds(20);
  Start(options);
  std::vector<RequestKey> keys;
  for (int i = 0; i < 60; ++i) keys.push_back(Arrive("a", 100));
  for (int i = 0; i < 12; ++i) ServeOne(absl::Milliseconds(300));
  // The next place goes to the newest request, not to the oldest one.
  const RequestKey newest = Arrive("a", 101);
  for (int i = 0; i < 3; ++i) ServeOne(absl::Milliseconds(300));
  ASSERT_TRUE(hub_->clients.at(newest).status);
  EXPECT_TRUE(StatusOf(newest).ok());
  EXPECT_FALSE(hub_->clients.at(keys[30]).status);
}

// A decode worker that takes its blocks back has not failed. Such retries count against no limit
// for failures.
TEST_F(OverloadedCoreTest, PreemptionIsNoFailure) {
  RequestMetrics metrics;
  RouterCoreOptions options = CoreHarness::Options();
  options.metrics = &metrics;
  hub_ = std::make_unique<CoreHarness>(options);
  hub_->AttachFour();
  for (int i = 0; i < 30; ++i) hub_->Arrive(Prompt(5), 6);
  std::vector<LegKey> prefills;
  for (const auto& [key, leg] : hub_->legs) prefills.push_back(key);
  ASSERT_EQ(prefills.size(), 30u);
  for (const LegKey prefill : prefills) {
    hub_->Ticket(prefill);
    hub_->First(prefill);
    const LegKey decode = hub_->DecodeLegOf(prefill);
    hub_->Reserve(decode);
    hub_->Tokens(decode, 0, 2);
    hub_->End(decode, absl::ResourceExhaustedError("preempted: all KV blocks are taken"));
  }
  hub_->Advance(absl::Seconds(1));
  for (const auto& [key, client] : hub_->clients) {
    EXPECT_FALSE(client.status) << *client.status;
  }
  EXPECT_EQ(metrics.retries_refused.value(), 0u);
  EXPECT_EQ(metrics.decode_failures.value(), 0u);
}

// But a request that never gets a token is given up, even if each worker says that it was full.
TEST_F(OverloadedCoreTest, ARequestIsPreemptedOnlySoManyTimesWithoutANewToken) {
  RouterCoreOptions options = CoreHarness::Options();
  options.mode = ServingMode::kColocated;
  hub_ = std::make_unique<CoreHarness>(options);
  hub_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  const RequestKey r = hub_->Arrive(Prompt(5), 6);
  int attempts = 0;
  while (!hub_->clients.at(r).status && attempts < 100) {
    if (const LegKey leg = hub_->DecodeLeg(); leg != 0) {
      ++attempts;
      hub_->Reserve(leg);
      hub_->End(leg, absl::ResourceExhaustedError("preempted: all KV blocks are taken"));
    }
    hub_->Advance(absl::Milliseconds(100));
    hub_->ReportAll();
  }
  EXPECT_EQ(attempts, 5);
  ASSERT_TRUE(hub_->clients.at(r).status);
  EXPECT_EQ(StatusOf(r).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(StatusOf(r).message()), HasSubstr("gave up after 5 attempts in a row"));
  EXPECT_TRUE(RetryAfter(StatusOf(r)));
}

// A core with one worker of each role, and its metrics.
class MeteredOverloadTest : public OverloadedCoreTest {
 protected:
  void Start(RouterCoreOptions options = CoreHarness::Options()) {
    options.metrics = &metrics_;
    OverloadedCoreTest::Start(std::move(options));
  }
  // Fills the queue of caller a, and lets the core measure that the prefill worker computes about 3
  // prompts of 100 tokens per second.
  void Overload() {
    for (int i = 0; i < 40; ++i) Arrive("a", 100);
    for (int i = 0; i < 10; ++i) ServeOne(absl::Milliseconds(300));
  }
  uint64_t ChargedTo(const std::string& caller) {
    for (const auto& [name, value] : metrics_.callers.Values(&CallerMetrics::One::tokens)) {
      if (name == caller) return value;
    }
    return 0;
  }

  RequestMetrics metrics_;
};

TEST_F(MeteredOverloadTest, RefusedTokensAreThoseOfTheRoleThatIsShort) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queue_wait = absl::Seconds(5);
  options.per_caller.queued = 30;
  Start(options);
  Overload();
  EXPECT_EQ(hub_->core.counters().shed, 0u) << "the caller's own limit";
  EXPECT_EQ(metrics_.prefill_refused_tokens.value(), 0u) << "the caller's own limit";
  const RequestKey hasty = Arrive("b", 100, absl::Milliseconds(100));
  ASSERT_TRUE(hub_->clients.at(hasty).status);
  EXPECT_EQ(metrics_.prefill_refused_tokens.value(), 0u) << "too short for idle workers too";
  RequestKey last;
  do {
    last = Arrive("b", 100);
  } while (!hub_->clients.at(last).status);
  EXPECT_THAT(std::string(StatusOf(last).message()), HasSubstr("the request would wait"));
  EXPECT_EQ(metrics_.prefill_refused_tokens.value(), 100u);
  EXPECT_EQ(metrics_.decode_refused_tokens.value(), 0u);
  CheckedRequest colocated = CoreHarness::Request(Prompt(100), 7);
  colocated.caller = "b";
  colocated.mode = ServingMode::kColocated;
  ASSERT_TRUE(hub_->clients.at(hub_->Arrive(std::move(colocated))).status);
  EXPECT_EQ(metrics_.prefill_refused_tokens.value(), 100u);
  EXPECT_EQ(metrics_.decode_refused_tokens.value(), 7u);
}

// Decode workers compute the prompts too if there is no prefill worker.
TEST_F(MeteredOverloadTest, RefusedTokensAreThoseOfDecodeIfItDoesEverything) {
  RouterCoreOptions options = CoreHarness::Options();
  options.mode = ServingMode::kAuto;
  options.metrics = &metrics_;
  options.max_queued = 10;
  options.max_prompts_per_worker = 2;
  hub_ = std::make_unique<CoreHarness>(std::move(options));
  hub_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  for (int i = 0; i < 13; ++i) Arrive("a", 100);
  EXPECT_EQ(metrics_.prefill_refused_tokens.value(), 0u);
  EXPECT_EQ(metrics_.decode_refused_tokens.value(), 2u);
}

// A worker spends nothing on a request that can't end in time any more.
TEST_F(MeteredOverloadTest, ARequestWhoseTurnComesTooLateIsRefused) {
  Start();
  Overload();
  while (hub_->core.queued() > 0) ServeOne(absl::Milliseconds(300));
  ASSERT_EQ(hub_->legs.size(), 2u);
  const RequestKey late = Arrive("a", 100, absl::Seconds(3));
  ASSERT_FALSE(hub_->clients.at(late).status) << StatusOf(late);
  hub_->Advance(absl::Milliseconds(2900));
  hub_->ReportAll();
  ASSERT_FALSE(hub_->clients.at(late).status) << StatusOf(late);
  ServeOne(absl::ZeroDuration());
  EXPECT_EQ(hub_->legs.size(), 1u) << "no worker got the request";
  ASSERT_TRUE(hub_->clients.at(late).status);
  EXPECT_THAT(std::string(StatusOf(late).message()), HasSubstr("and after a wait of 2.9s the"));
  EXPECT_TRUE(RetryAfter(StatusOf(late)));
}

TEST_F(MeteredOverloadTest, TokensOfCancelledRequestsAreCharged) {
  Start();
  const RequestKey key = Arrive("a", 100);
  const LegKey prefill = hub_->PrefillLeg();
  EXPECT_EQ(ChargedTo("a"), 0u);
  hub_->Ticket(prefill);
  hub_->Tell(ClientGone{key});
  EXPECT_EQ(ChargedTo("a"), 100u) << "the worker had begun with the prompt";
  // A prompt that no worker has begun with costs nothing.
  const RequestKey waits = Arrive("b", 100);
  hub_->Tell(ClientGone{waits});
  EXPECT_EQ(ChargedTo("b"), 0u);
}

TEST_F(MeteredOverloadTest, TheTokensOfEachAnswerAreCharged) {
  Start();
  CheckedRequest request = CoreHarness::Request(Prompt(100), 7);
  request.caller = "a";
  request.answers = 3;
  const RequestKey key = hub_->Arrive(std::move(request));
  for (int i = 0; i < 10 && !hub_->clients.at(key).status; ++i) ServeOne(absl::Milliseconds(10));
  ASSERT_TRUE(hub_->clients.at(key).status);
  EXPECT_TRUE(StatusOf(key).ok()) << StatusOf(key);
  EXPECT_EQ(ChargedTo("a"), 3 * (100u + 7)) << "no worker had the prompt in its cache";
  EXPECT_EQ(metrics_.prefill_successes.value(), 3u);
  EXPECT_EQ(metrics_.decode_successes.value(), 3u);
}

TEST_F(MeteredOverloadTest, RequestsThatFindNoWorkerOrNoRoomAreCounted) {
  Start();
  const RequestKey crowded = Arrive("a", 5);
  hub_->Ticket(hub_->PrefillLeg());
  for (int i = 0; i < 10000 && !hub_->clients.at(crowded).status; ++i) {
    if (const LegKey leg = hub_->DecodeLeg(); leg != 0) {
      hub_->End(leg, absl::ResourceExhaustedError("full"));
    }
    hub_->Advance(absl::Milliseconds(10));
    hub_->ReportAll();
  }
  EXPECT_EQ(metrics_.no_room.value(), 1u);
  EXPECT_EQ(metrics_.no_worker.value(), 0u);
  for (const AttachKey attach : {1, 2}) {
    hub_->Tell(WorkerDetached{attach});
    hub_->closed[attach] = absl::OkStatus();
  }
  const RequestKey alone = Arrive("a", 5);
  hub_->Advance(absl::Minutes(1));
  ASSERT_TRUE(hub_->clients.at(alone).status);
  EXPECT_EQ(StatusOf(alone).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(metrics_.no_worker.value(), 1u);
}

}  // namespace
}  // namespace baton
