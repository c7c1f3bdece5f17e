#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "router/core/error_rate.h"
#include "router/core/retry_budget.h"
#include "router/core/worker_health.h"
#include "router/testing/router_core_fixture.h"

// Tests of what the router does about workers that fail many requests, and about requests that fail
// on every worker.
namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

const absl::Time kStart = absl::FromUnixSeconds(1000);

// --- WorkerHealth ---

// Fails the requests that eject a worker.
void FailUntilEjected(WorkerHealth* health, absl::Time now) {
  for (int i = 1; i < WorkerHealth::kFailures; ++i) ASSERT_FALSE(health->Failed(i));
  ASSERT_TRUE(health->Failed(99));
  health->Eject(now);
}

TEST(WorkerHealthTest, OnlyFailuresInARowEject) {
  WorkerHealth health;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(health.Failed(i), i % WorkerHealth::kFailures == WorkerHealth::kFailures - 1);
    if (i % WorkerHealth::kFailures == WorkerHealth::kFailures - 1) {
      EXPECT_FALSE(health.Succeeded(kStart));
    }
  }
  EXPECT_FALSE(health.Out(kStart));
}

TEST(WorkerHealthTest, AProbeThatSucceedsBringsTheWorkerBack) {
  WorkerHealth health;
  FailUntilEjected(&health, kStart);
  EXPECT_TRUE(health.Out(kStart));
  const absl::Time probe = health.until();
  EXPECT_EQ(probe - kStart, WorkerHealth::kFirstPause);
  EXPECT_FALSE(health.Out(probe));
  EXPECT_TRUE(health.ejected());
  health.Began(7, probe);
  EXPECT_TRUE(health.Out(probe)) << "a second request came beside the probe";
  EXPECT_TRUE(health.Succeeded(probe));
  EXPECT_FALSE(health.ejected());
}

TEST(WorkerHealthTest, EachFailedProbeDoublesThePauseUpToAMinute) {
  WorkerHealth health;
  absl::Time now = kStart;
  FailUntilEjected(&health, now);
  absl::Duration pause = WorkerHealth::kFirstPause;
  for (LegKey leg = 100; leg < 120; ++leg) {
    EXPECT_EQ(health.until() - now, pause);
    now = health.until();
    health.Began(leg, now);
    health.Ended(leg);  // the end of the RPC comes before its failure is counted
    ASSERT_TRUE(health.Failed(leg));
    health.Eject(now);
    pause = std::min(2 * pause, WorkerHealth::kMaxPause);
  }
  EXPECT_EQ(pause, WorkerHealth::kMaxPause);
}

TEST(WorkerHealthTest, RequestsFromBeforeTheEjectionDoNotProlongIt) {
  WorkerHealth health;
  FailUntilEjected(&health, kStart);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(health.Failed(i));
}

TEST(WorkerHealthTest, AProbeThatWasCancelledIsFollowedByAnother) {
  WorkerHealth health;
  FailUntilEjected(&health, kStart);
  health.Began(7, health.until());
  health.Ended(7);
  EXPECT_FALSE(health.Out(health.until()));
  EXPECT_TRUE(health.ejected());
}

TEST(WorkerHealthTest, AWorkerThatServedForAMinuteBeginsWithAShortPause) {
  WorkerHealth health;
  absl::Time now = kStart;
  for (const absl::Duration served : {absl::Seconds(1), absl::Seconds(1), absl::Minutes(2)}) {
    FailUntilEjected(&health, now);
    now = health.until();
    health.Began(7, now);
    health.Succeeded(now);
    now += served;
  }
  FailUntilEjected(&health, now);
  EXPECT_EQ(health.until() - now, WorkerHealth::kFirstPause);
}

// --- RetryBudget ---

TEST(ErrorRateTest, CountsTheLastMinute) {
  ErrorRate rate;
  absl::Time now = kStart;
  for (int second = 0; second < 300; ++second) {
    rate.Add(second % 3 == 0, now);
    rate.Add(false, now);
    if (second > 60) {
      EXPECT_GE(rate.LastMinute(now).requests, 2u * 50);
      EXPECT_LE(rate.LastMinute(now).requests, 2u * 60);
      EXPECT_NEAR(rate.LastMinute(now).failed, rate.LastMinute(now).requests / 6.0, 1);
    }
    now += absl::Seconds(1);
  }
  EXPECT_EQ(rate.LastMinute(now + absl::Seconds(60)).requests, 0u);
  rate.Add(true, absl::InfinitePast());
}

TEST(RetryBudgetTest, TenRetriesAreAlwaysAllowed) {
  RetryBudget budget;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.Take(kStart));
  EXPECT_FALSE(budget.Take(kStart + absl::Seconds(9)));
  EXPECT_TRUE(budget.Take(kStart + absl::Seconds(10)));
}

TEST(RetryBudgetTest, ClocksThatWereNeverSetWorkToo) {
  RetryBudget budget;
  absl::Time now = absl::UnixEpoch() - absl::Seconds(25);
  for (int i = 0; i < 50; ++i, now += absl::Seconds(1)) budget.Began(now);
  EXPECT_EQ(budget.attempts(), 10u);
}

TEST(RetryBudgetTest, ARetryThatIsGivenBackMayBeTakenAgain) {
  RetryBudget budget;
  const absl::Time begin = absl::FromUnixSeconds(5);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.Take(begin));
  budget.GiveBack(begin);
  EXPECT_EQ(budget.retries(), 9u);
  EXPECT_TRUE(budget.Take(begin + absl::Seconds(9)));
  EXPECT_FALSE(budget.Take(begin + absl::Seconds(9)));
  // The place of the first second is another second's now.
  EXPECT_TRUE(budget.Take(begin + absl::Seconds(10)));
  budget.GiveBack(begin);
  EXPECT_EQ(budget.retries(), 2u);
}

TEST(RetryBudgetTest, MoreRetriesAreAFifthOfTheAttempts) {
  RetryBudget budget;
  int retries = 0;
  for (int i = 0; i < 10000; ++i) {
    const absl::Time now = kStart + absl::Milliseconds(i);
    budget.Began(now);
    retries += budget.Take(now);
  }
  EXPECT_GE(retries, 2000 - 1);
  EXPECT_LE(retries, 2000 + 10);
  EXPECT_EQ(budget.attempts(), 10000u);
}

// --- The core ---

class SickWorkersTest : public RouterCoreTest {
 protected:
  // Attaches decode workers d1, d2 and so on, which compute prompts too.
  void Attach(int workers) {
    RouterCoreOptions options = CoreHarness::Options();
    options.mode = ServingMode::kColocated;
    options.policy = RoutingPolicyKind::kRoundRobin;
    options.metrics = &metrics_;
    hub_ = std::make_unique<CoreHarness>(options);
    for (int i = 1; i <= workers; ++i) {
      attached_[absl::StrCat("d", i, ":1")] =
          hub_->Attach(v1::WORKER_ROLE_DECODE, absl::StrCat("d", i, ":1"), 10 + i);
    }
  }
  // Serves one request. Workers for which `sick` has an error fail it with this error. Counts the
  // legs of each worker.
  absl::Status Serve(const std::map<std::string, absl::Status>& sick) {
    const RequestKey r = hub_->Arrive(Prompt(5), 6);
    while (!hub_->clients.at(r).status) {
      const LegKey leg = hub_->DecodeLeg();
      if (leg == 0) {
        hub_->Advance(absl::Milliseconds(10));
        hub_->ReportAll();
        continue;
      }
      const std::string address = hub_->At(leg).worker.address;
      ++legs_[address];
      if (const auto error = sick.find(address); error != sick.end()) {
        hub_->End(leg, error->second);
      } else {
        hub_->FinishDecode(leg);
      }
    }
    return *hub_->clients.at(r).status;
  }

  RequestMetrics metrics_;
  std::unique_ptr<CoreHarness> hub_;
  std::map<std::string, AttachKey> attached_;
  std::map<std::string, int> legs_;
};

TEST_F(SickWorkersTest, TwoOfThreeThatFailEverythingGetFewRequests) {
  Attach(3);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Serve({{"d1:1", absl::InternalError("x")}, {"d3:1", absl::UnavailableError("x")}}),
              absl::OkStatus());
    hub_->Advance(absl::Milliseconds(10));
    hub_->ReportAll();
  }
  EXPECT_EQ(legs_["d2:1"], 1000);
  // In 10 s each sick worker gets three requests and the probes after 1, 3 and 7 s. A request that
  // was counted against the other worker may come once more.
  EXPECT_LE(legs_["d1:1"], 10);
  EXPECT_LE(legs_["d3:1"], 10);
  EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 2);
  EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kReady].value(), 1);
  EXPECT_GE(metrics_.decode_ejections.value(), 6u);
  EXPECT_THAT(hub_->serving.unused,
              ElementsAre("decode worker d1:1 is not used: it failed several requests in a row",
                          "decode worker d3:1 is not used: it failed several requests in a row"));
  ASSERT_EQ(hub_->serving.failing.size(), 2u);
  EXPECT_THAT(hub_->serving.failing[0],
              testing::MatchesRegex(
                  "decode worker d[13]:1 failed [0-9]+ of [0-9]+ requests in the last minute"));
  // They recover.
  legs_.clear();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Serve({}), absl::OkStatus());
    hub_->Advance(absl::Milliseconds(100));
    hub_->ReportAll();
  }
  EXPECT_GT(legs_["d1:1"], 0);
  EXPECT_GT(legs_["d3:1"], 0);
  EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 0);
  EXPECT_THAT(hub_->serving.failing, testing::IsEmpty());
}

// Statuses that healthy workers also send, but not before they have reserved anything.
TEST_F(SickWorkersTest, WorkersThatFailEverythingAreEjectedWhateverTheySay) {
  for (const Code code : {Code::kCancelled, Code::kDeadlineExceeded, Code::kFailedPrecondition,
                          Code::kInvalidArgument, Code::kUnimplemented}) {
    SCOPED_TRACE(absl::StatusCodeToString(code));
    Attach(3);
    legs_.clear();
    const absl::Status sick(code, "x");
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(Serve({{"d1:1", sick}, {"d3:1", sick}}), absl::OkStatus());
      hub_->Advance(absl::Milliseconds(10));
      hub_->ReportAll();
    }
    EXPECT_LE(legs_["d1:1"], 10);
    EXPECT_LE(legs_["d3:1"], 10);
    attached_.clear();
  }
}

// gRPC ends an RPC at its deadline, a little before or after the router does.
TEST_F(SickWorkersTest, TheDeadlineOfARequestIsNoFailureOfItsWorker) {
  Attach(2);
  for (int i = 0; i < 20; ++i) {
    CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
    request.deadline = hub_->now + absl::Seconds(1);
    const RequestKey r = hub_->Arrive(std::move(request));
    hub_->Advance(absl::Milliseconds(950));
    hub_->ReportAll();
    hub_->End(hub_->DecodeLeg(), absl::DeadlineExceededError("Deadline Exceeded"));
    hub_->Advance(absl::Milliseconds(100));
    hub_->ReportAll();
    EXPECT_TRUE(hub_->clients.at(r).status);
  }
  EXPECT_EQ(metrics_.decode_failures.value(), 0u);
}

TEST_F(SickWorkersTest, AtMostHalfOfTheWorkersAndNeverTheLastAreEjected) {
  for (const auto& [workers, ejected] :
       std::map<int, int>{{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}}) {
    SCOPED_TRACE(workers);
    Attach(workers);
    std::map<std::string, absl::Status> sick;
    for (const auto& [address, key] : attached_) sick[address] = absl::InternalError("x");
    for (int i = 0; i < 200; ++i) EXPECT_FALSE(Serve(sick).ok());
    EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), ejected);
    attached_.clear();
  }
}

// An answer may take minutes. A worker that sends tokens need not wait so long to be in use again.
TEST_F(SickWorkersTest, AProbeThatBringsTokensForSomeTimeHasSucceeded) {
  Attach(2);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Serve({{"d1:1", absl::InternalError("x")}}).ok());
  ASSERT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 1);
  hub_->Advance(absl::Minutes(1));
  hub_->ReportAll();
  LegKey probe = 0;
  while (probe == 0) {
    hub_->Arrive(Prompt(5), 100);
    for (const auto& [key, leg] : hub_->legs) {
      if (leg.worker.address == "d1:1") probe = key;
    }
  }
  hub_->Reserve(probe);
  for (int second = 0; second <= 2; ++second) {
    EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 1) << second;
    hub_->Tokens(probe, second, 1);
    hub_->Advance(absl::Seconds(1));
    hub_->ReportAll();
  }
  EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 0);
}

TEST_F(SickWorkersTest, AnEjectedWorkerIsUsedIfNoOtherIsLeft) {
  Attach(2);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Serve({{"d1:1", absl::InternalError("x")}}).ok());
  ASSERT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 1);
  hub_->Tell(WorkerDetached{attached_["d2:1"]});
  hub_->closed[attached_["d2:1"]] = absl::OkStatus();  // it reports no more
  legs_.clear();
  EXPECT_TRUE(Serve({}).ok());
  EXPECT_EQ(legs_["d1:1"], 1);
}

// The request is given up after five attempts, and counts against one worker only.
TEST_F(SickWorkersTest, ARequestThatBreaksEveryWorkerIsGivenUp) {
  Attach(10);
  std::map<std::string, absl::Status> sick;
  for (const auto& [address, key] : attached_) sick[address] = absl::InternalError("bad logits");
  const absl::Status status = Serve(sick);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gave up after 5 attempts in a row that failed without a new token; the "
                        "last error: decode on d"));
  EXPECT_EQ(legs_.size(), 5u);
  EXPECT_EQ(metrics_.decode_failures.value(), 1u);
}

TEST_F(SickWorkersTest, ANewTokenBeginsTheCountAnew) {
  Attach(2);
  const RequestKey r = hub_->Arrive(Prompt(5), 6);
  for (int i = 0; i < 5; ++i) {
    for (int times = 0; times < 2; ++times) {
      while (hub_->DecodeLeg() == 0) {
        hub_->Advance(absl::Milliseconds(20));
        hub_->ReportAll();
      }
      const LegKey leg = hub_->DecodeLeg();
      hub_->Reserve(leg);
      if (times == 0) hub_->Tokens(leg, 0, 1);
      hub_->End(leg, absl::InternalError("x"));
    }
  }
  hub_->Advance(absl::Seconds(1));
  hub_->ReportAll();
  hub_->FinishDecode(hub_->DecodeLeg());
  EXPECT_TRUE(hub_->clients.at(r).status->ok()) << *hub_->clients.at(r).status;
}

// Whichever of a dead worker's connections ends first, the death is not counted.
TEST_F(SickWorkersTest, DeathsOfWorkersAreFree) {
  Attach(1);
  const RequestKey r = hub_->Arrive(Prompt(5), 6);
  AttachKey attach = attached_["d1:1"];
  for (int death = 0; death < 12; ++death) {
    const AttachKey next =
        hub_->Attach(v1::WORKER_ROLE_DECODE, absl::StrCat("next", death, ":1"), 100 + death);
    const LegKey leg = hub_->DecodeLeg();
    ASSERT_NE(leg, 0u) << death;
    const auto end_leg = [&] { hub_->End(leg, absl::UnavailableError("connection reset")); };
    const auto detach = [&] {
      hub_->Tell(WorkerDetached{attach});
      hub_->closed[attach] = absl::OkStatus();
    };
    if (death % 2 == 0) {
      end_leg();
      if (death == 0) {
        EXPECT_NE(hub_->DecodeLeg(), 0u) << "tried again at once";
      }
      hub_->Advance(absl::Milliseconds(10));
      detach();
    } else {
      detach();
      end_leg();
    }
    attach = next;
    hub_->Advance(absl::Seconds(1));
    hub_->ReportAll();
  }
  hub_->FinishDecode(hub_->DecodeLeg());
  EXPECT_TRUE(hub_->clients.at(r).status->ok()) << *hub_->clients.at(r).status;
}

// The address of a worker that has died may soon be that of another process, which says so.
TEST_F(SickWorkersTest, AWorkerWhoseAddressAnotherHasIsDead) {
  Attach(1);
  for (int i = 0; i < 40; ++i) hub_->Arrive(Prompt(5), 6);
  std::vector<LegKey> legs;
  for (const auto& [key, leg] : hub_->legs) legs.push_back(key);
  ASSERT_EQ(legs.size(), 40u);
  hub_->Attach(v1::WORKER_ROLE_DECODE, "d2:1", 12);
  for (const LegKey leg : legs) hub_->End(leg, absl::AbortedError("another one"));
  EXPECT_EQ(hub_->legs.size(), 40u) << "all are tried again at once";
  for (const auto& [key, leg] : hub_->legs) EXPECT_EQ(leg.worker.address, "d2:1");
  EXPECT_EQ(metrics_.retries_refused.value(), 0u);
  EXPECT_EQ(metrics_.decode_failures.value(), 0u);
  // If it reports all the same, it lives, and what it said was a failure.
  hub_->ReportAll();
  EXPECT_EQ(metrics_.decode_failures.value(), 1u);
  for (int i = 0; i < 2; ++i) hub_->Arrive(Prompt(5), 6);
  int back = 0;
  for (const auto& [key, leg] : hub_->legs) back += leg.worker.address == "d1:1";
  EXPECT_EQ(back, 1);
}

// The RPCs of a worker end a little before its Attach stream. There are too many for the retries
// that are allowed after failures.
TEST_F(SickWorkersTest, AllRequestsOfAWorkerThatDiesAreTriedAgain) {
  for (const bool dies : {true, false}) {
    SCOPED_TRACE(dies);
    Attach(1);
    for (int i = 0; i < 40; ++i) hub_->Arrive(Prompt(5), 6);
    std::vector<LegKey> legs;
    for (const auto& [key, leg] : hub_->legs) legs.push_back(key);
    ASSERT_EQ(legs.size(), 40u);
    hub_->Attach(v1::WORKER_ROLE_DECODE, "d2:1", 12);
    for (const LegKey leg : legs) hub_->End(leg, absl::InternalError("the device failed"));
    EXPECT_EQ(hub_->legs.size(), 10u);
    hub_->Advance(absl::Milliseconds(100));
    EXPECT_EQ(hub_->legs.size(), 10u);
    if (dies) hub_->Tell(WorkerDetached{attached_["d1:1"]});
    hub_->Settle();
    EXPECT_EQ(hub_->legs.size(), dies ? 40u : 10u);
    hub_->Advance(absl::Milliseconds(200));
    int ended = 0;
    for (const auto& [key, client] : hub_->clients) {
      if (!client.status) continue;
      ++ended;
      EXPECT_EQ(client.status->code(), Code::kUnavailable);
      EXPECT_THAT(std::string(client.status->message()),
                  HasSubstr("not tried again, because 10 of the last "));
    }
    EXPECT_EQ(ended, dies ? 0 : 30);
    EXPECT_EQ(metrics_.retries_refused.value(), dies ? 0u : 30u);
    // If the worker died, the retries that are allowed after failures are still there.
    legs.clear();
    for (const auto& [key, leg] : hub_->legs) legs.push_back(key);
    for (size_t i = 0; i < 10; ++i) hub_->End(legs[i], absl::InternalError("the device failed"));
    hub_->Advance(absl::Milliseconds(400));
    EXPECT_EQ(metrics_.retries_refused.value(), dies ? 0u : 40u);
    attached_.clear();
  }
}

// A worker that finds valid requests invalid fails no request, and is ejected.
TEST_F(SickWorkersTest, AWorkerThatFindsValidRequestsInvalidIsNotBelieved) {
  Attach(2);
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(Serve({{"d1:1", absl::InvalidArgumentError("no")}}).ok());
  }
  EXPECT_EQ(legs_["d1:1"], WorkerHealth::kFailures);
  EXPECT_EQ(metrics_.decode_workers[RequestMetrics::kEjected].value(), 1);
}

// Lets seconds pass in which all workers go on reporting.
void PassSeconds(CoreHarness* h, int seconds) {
  for (int i = 0; i < seconds; ++i) {
    h->Advance(absl::Seconds(1));
    h->ReportAll();
  }
}

// The worker goes on reporting its load, and sends nothing more for the request.
TEST_F(SickWorkersTest, ASilentStreamIsGivenUp) {
  Attach(2);
  const RequestKey r = hub_->Arrive(Prompt(5), 6);
  const LegKey silent = hub_->DecodeLeg();
  const std::string address = hub_->At(silent).worker.address;
  for (auto& [key, load] : hub_->loads) load.set_waiting(1);
  PassSeconds(hub_.get(), 100);
  EXPECT_EQ(hub_->DecodeLeg(), silent) << "the prompt may wait in the worker's queue";
  for (auto& [key, load] : hub_->loads) load.set_waiting(0);
  hub_->Reserve(silent);
  PassSeconds(hub_.get(), 59);
  hub_->Tokens(silent, 0, 1);
  PassSeconds(hub_.get(), 59);
  EXPECT_EQ(hub_->DecodeLeg(), silent);
  PassSeconds(hub_.get(), 2);
  ASSERT_NE(hub_->DecodeLeg(), silent);
  EXPECT_NE(hub_->At(hub_->DecodeLeg()).worker.address, address);
  hub_->FinishDecode(hub_->DecodeLeg());
  EXPECT_TRUE(hub_->clients.at(r).status->ok());
  EXPECT_EQ(metrics_.decode_failures.value(), 1u);
}

// A decode worker has reserved blocks and pulled the KV. Then it says nothing more.
TEST_F(RouterCoreTest, ADecodeWorkerThatForgetsASequenceIsGivenUp) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.First(prefill);
  const LegKey silent = h.DecodeLeg();
  h.Reserve(silent);
  h.End(prefill, absl::OkStatus());
  for (auto& [key, load] : h.loads) load.set_waiting(1);
  PassSeconds(&h, 100);
  EXPECT_EQ(h.DecodeLeg(), silent) << "the sequence may wait for a place in the batch";
  for (auto& [key, load] : h.loads) load.set_waiting(0);
  PassSeconds(&h, 20);
  EXPECT_EQ(h.DecodeLeg(), 0u);
  ASSERT_NE(h.PrefillLeg(), 0u);
  h.RunToEnd(h.PrefillLeg());
  EXPECT_TRUE(h.clients.at(r).status->ok());
}

// The lease on the KV would end the request much later.
TEST_F(RouterCoreTest, ADecodeWorkerThatNeverReservesIsGivenUp) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.First(prefill);
  const LegKey silent = h.DecodeLeg();
  for (auto& [key, load] : h.loads) load.set_waiting(1);
  PassSeconds(&h, 100);
  EXPECT_EQ(h.DecodeLeg(), silent) << "the sequence may wait for a prompt with the same beginning";
  for (auto& [key, load] : h.loads) load.set_waiting(0);
  PassSeconds(&h, 20);
  EXPECT_NE(h.DecodeLeg(), silent);
  ASSERT_NE(h.PrefillLeg(), 0u);
  h.RunToEnd(h.PrefillLeg());
  EXPECT_TRUE(h.clients.at(r).status->ok());
}

// A core with four workers, and its metrics.
struct MeteredCore {
  MeteredCore() { h.AttachFour(); }
  RouterCoreOptions Options() {
    RouterCoreOptions options = CoreHarness::Options();
    options.metrics = &metrics;
    return options;
  }

  RequestMetrics metrics;
  CoreHarness h{Options()};
};

// A decode worker can't pull because the other worker has no such KV, or sends it too slowly.
TEST(BlameTest, KvThatDoesNotComeIsNoFailureOfEitherWorker) {
  for (const Code code : {Code::kFailedPrecondition, Code::kDeadlineExceeded}) {
    MeteredCore w;
    const RequestKey r = w.h.Arrive(Prompt(5), 6);
    w.h.Ticket(w.h.PrefillLeg());
    w.h.Reserve(w.h.DecodeLeg());
    w.h.End(w.h.DecodeLeg(), absl::Status(code, "the KV did not come"));
    w.h.RunToEnd();
    EXPECT_TRUE(w.h.clients.at(r).status->ok());
    EXPECT_EQ(w.metrics.decode_failures.value(), 0u);
    EXPECT_EQ(w.metrics.prefill_failures.value(), 0u);
  }
}

// The decode worker can't pull because the prefill worker dies. There are more such requests than
// retries that are allowed after failures.
TEST(BlameTest, DeathsOfPrefillWorkersAreFreeWhileTheirKvIsPulled) {
  for (const bool dies : {true, false}) {
    SCOPED_TRACE(dies);
    MeteredCore w;
    std::vector<LegKey> pulls;
    while (pulls.size() < 40) {
      w.h.Arrive(Prompt(5), 6);
      const LegKey prefill = w.h.PrefillLeg();
      w.h.Ticket(prefill);
      w.h.First(prefill);
      const LegKey decode = w.h.DecodeLegOf(prefill);
      if (w.h.At(prefill).worker.address == "p1:1") {
        w.h.Reserve(decode);
        w.h.End(prefill, absl::OkStatus());
        pulls.push_back(decode);
      } else {
        w.h.FinishDecode(decode);
        w.h.End(prefill, absl::OkStatus());
      }
    }
    for (const LegKey pull : pulls) {
      w.h.End(pull, absl::FailedPreconditionError("the link to the owner was lost"));
    }
    w.h.Advance(absl::Milliseconds(100));
    EXPECT_LT(w.h.legs.size(), 40u);
    if (dies) w.h.Tell(WorkerDetached{w.h.p1});
    w.h.Settle();
    if (dies) {
      EXPECT_EQ(w.h.legs.size(), 40u);
    }
    w.h.Advance(absl::Milliseconds(300));
    EXPECT_EQ(w.metrics.retries_refused.value(), dies ? 0u : 30u);
    EXPECT_EQ(w.metrics.decode_failures.value(), 0u);
    EXPECT_EQ(w.metrics.prefill_failures.value(), 0u);
  }
}

// A prefill worker that fails a request with any code, before the first token, is left.
TEST(BlameTest, ALeaseCantRunOutBeforeTheFirstToken) {
  MeteredCore w;
  const RequestKey r = w.h.Arrive(Prompt(5), 6);
  const LegKey sick = w.h.PrefillLeg();
  const std::string address = w.h.At(sick).worker.address;
  w.h.Ticket(sick);
  w.h.Reserve(w.h.DecodeLeg());
  w.h.End(sick, absl::FailedPreconditionError("this worker is sick"));
  ASSERT_NE(w.h.PrefillLeg(), 0u);
  EXPECT_NE(w.h.At(w.h.PrefillLeg()).worker.address, address);
  EXPECT_EQ(w.metrics.decode_failures.value(), 0u);
  EXPECT_EQ(w.metrics.prefill_failures.value(), 1u);
  w.h.RunToEnd();
  EXPECT_TRUE(w.h.clients.at(r).status->ok());
}

// The first token waits until a decode worker has reserved blocks. The prefill worker has ended its
// RPC then, but the token is still its own.
TEST(BlameTest, AnImpossibleFirstTokenCountsAgainstThePrefillWorkerThatHasLeft) {
  MeteredCore w;
  const RequestKey r = w.h.Arrive(Prompt(5), 6);
  for (int times = 0; times < 5 && !w.h.clients.at(r).status; ++times) {
    while (w.h.PrefillLeg() == 0) {
      w.h.Advance(absl::Milliseconds(20));
      w.h.ReportAll();
    }
    const LegKey prefill = w.h.PrefillLeg();
    w.h.Ticket(prefill);
    v1::PrefillEvent event;
    *event.mutable_first_token()->mutable_token() = CoreHarness::MakeToken(kHarnessVocab, 5);
    w.h.Tell(PrefillSaid{prefill, event});
    w.h.End(prefill, absl::OkStatus());
    w.h.Reserve(w.h.DecodeLeg());
  }
  w.h.Advance(absl::Seconds(1));
  ASSERT_TRUE(w.h.clients.at(r).status);
  EXPECT_THAT(std::string(w.h.clients.at(r).status->message()), HasSubstr("gave up after 5"));
  EXPECT_EQ(w.metrics.prefill_failures.value(), 1u);
  EXPECT_EQ(w.metrics.decode_failures.value(), 0u);
}

// The ticket may be what the decode worker finds invalid.
TEST(BlameTest, ABadTicketCountsAgainstWhoSentItToo) {
  MeteredCore w;
  const RequestKey r = w.h.Arrive(Prompt(5), 6);
  w.h.Ticket(w.h.PrefillLeg());
  w.h.End(w.h.DecodeLeg(), absl::InvalidArgumentError("ticket names block -1"));
  w.h.RunToEnd();
  EXPECT_TRUE(w.h.clients.at(r).status->ok());
  EXPECT_EQ(w.metrics.decode_failures.value(), 1u);
  EXPECT_EQ(w.metrics.prefill_failures.value(), 1u);
}

TEST(BlameTest, ALieIsNotTheFaultOfTheWorkerThatSentTheKv) {
  for (const bool lie : {true, false}) {
    MeteredCore w;
    w.h.Arrive(Prompt(5), 6);
    w.h.Ticket(w.h.PrefillLeg());
    w.h.First(w.h.PrefillLeg());
    w.h.Reserve(w.h.DecodeLeg());
    if (lie) {
      w.h.Token(w.h.DecodeLeg(), 1, 9);
    } else {
      w.h.End(w.h.DecodeLeg(), absl::DataLossError("the checksum is wrong"));
    }
    w.h.RunToEnd();
    EXPECT_EQ(w.metrics.decode_failures.value(), 1u);
    EXPECT_EQ(w.metrics.prefill_failures.value(), lie ? 0u : 1u);
  }
}

class EjectedWorkerTest : public ::testing::Test, protected MeteredCore {};

// Serves one request. The attempts that d1 gets fail.
void FailOne(CoreHarness* h) {
  const RequestKey r = h->Arrive(Prompt(5), 6);
  while (!h->clients.at(r).status) {
    h->Advance(absl::Milliseconds(20));
    h->ReportAll();
    const LegKey prefill = h->PrefillLeg();
    if (prefill == 0) continue;
    h->Ticket(prefill);
    h->First(prefill);
    const LegKey decode = h->DecodeLegOf(prefill);
    if (h->At(decode).worker.address == "d1:1") {
      h->End(decode, absl::InternalError("the device failed"));
    } else {
      h->FinishDecode(decode);
    }
  }
}

// A worker in use that is full now is better than one that fails everything.
TEST_F(EjectedWorkerTest, GetsNoTicketWhileTheOthersAreFull) {
  for (int i = 0; i < 50; ++i) FailOne(&h);
  ASSERT_EQ(metrics.decode_workers[RequestMetrics::kEjected].value(), 1);
  // Begins shortly after a probe, so that the next one is not due.
  const uint64_t failures = metrics.decode_failures.value();
  while (metrics.decode_failures.value() == failures) FailOne(&h);
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.First(prefill);
  for (int i = 0; i < 2; ++i) {
    const LegKey decode = h.DecodeLeg();
    ASSERT_NE(decode, 0u);
    ASSERT_EQ(h.At(decode).worker.address, "d2:1") << i;
    h.End(decode, absl::ResourceExhaustedError("full"));
    EXPECT_EQ(h.DecodeLeg(), 0u);
    h.Advance(absl::Milliseconds(100));
  }
  h.FinishDecode(h.DecodeLeg());
  EXPECT_TRUE(h.clients.at(r).status->ok());
}

// If a decode worker takes a ticket and does not read, the lease runs out at the prefill worker.
TEST_F(EjectedWorkerTest, IsTheOneThatDidNotReadBeforeTheLeaseRanOut) {
  h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.First(prefill);
  const std::string silent = h.At(h.DecodeLeg()).worker.address;
  h.End(prefill, absl::FailedPreconditionError("no reader renewed its lease in 5s"));
  h.Advance(absl::Milliseconds(20));
  EXPECT_EQ(metrics.decode_failures.value(), 1u);
  EXPECT_EQ(metrics.prefill_failures.value(), 0u);
  const LegKey again = h.PrefillLeg();
  ASSERT_NE(again, 0u);
  h.Ticket(again);
  EXPECT_NE(h.At(h.DecodeLeg()).worker.address, silent);
}

// The worker reports that nothing waits in its queue, and never begins with the prompt.
TEST_F(SickWorkersTest, ARequestThatItsWorkerHasForgottenIsGivenUp) {
  Attach(2);
  hub_->Arrive(Prompt(5), 6);
  const LegKey forgotten = hub_->DecodeLeg();
  const std::string address = hub_->At(forgotten).worker.address;
  int seconds = 0;
  while (hub_->DecodeLeg() == forgotten && seconds < 1000) {
    hub_->Advance(absl::Seconds(1));
    hub_->ReportAll();
    ++seconds;
  }
  EXPECT_GE(seconds, 60);
  EXPECT_LE(seconds, 66);
  ASSERT_NE(hub_->DecodeLeg(), 0u);
  EXPECT_NE(hub_->At(hub_->DecodeLeg()).worker.address, address);
}

// The worker's reports and its events come on different streams. So a report that nothing waits any
// longer may come before the event that says that the request has begun.
TEST_F(SickWorkersTest, ARequestThatHasJustLeftItsWorkersQueueIsNotForgotten) {
  Attach(2);
  hub_->Arrive(Prompt(5), 6);
  const LegKey waiting = hub_->DecodeLeg();
  for (auto& [key, load] : hub_->loads) load.set_waiting(1);
  PassSeconds(hub_.get(), 100);
  for (auto& [key, load] : hub_->loads) load.set_waiting(0);
  PassSeconds(hub_.get(), 4);
  EXPECT_EQ(hub_->DecodeLeg(), waiting);
  hub_->Reserve(waiting);
  PassSeconds(hub_.get(), 50);
  EXPECT_EQ(hub_->DecodeLeg(), waiting);
}

// A worker with other requests in its queue may forget one too.
TEST_F(SickWorkersTest, NoRequestWaitsAtAWorkerForEver) {
  Attach(2);
  hub_->Arrive(Prompt(5), 6);
  const LegKey waiting = hub_->DecodeLeg();
  for (auto& [key, load] : hub_->loads) load.set_waiting(1);
  PassSeconds(hub_.get(), 179);
  EXPECT_EQ(hub_->DecodeLeg(), waiting);
  PassSeconds(hub_.get(), 3);
  EXPECT_NE(hub_->DecodeLeg(), waiting);
}

// A prompt may take as long as a worker that computes 1,000 tokens per minute needs for all its
// prompts.
TEST_F(RouterCoreTest, APrefillWorkerThatHangsIsGivenUpLaterForALongPrompt) {
  h.AttachFour();
  h.Arrive(Prompt(2500), 6);
  const LegKey silent = h.PrefillLeg();
  h.Ticket(silent);
  // The decode worker waits for the KV.
  for (auto& [key, load] : h.loads) load.set_waiting(1);
  int seconds = 0;
  while (h.PrefillLeg() == silent && seconds < 1000) {
    h.Advance(absl::Seconds(1));
    h.ReportAll();
    ++seconds;
  }
  EXPECT_GE(seconds, 180);
  EXPECT_LE(seconds, 182);
}

}  // namespace
}  // namespace baton
