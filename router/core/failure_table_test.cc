#include <set>
#include <string>

#include "common/rpc/limits.h"
#include "common/rpc/retry_after.h"
#include "router/testing/router_core_fixture.h"

// Tests of the failure table in router/README.md.
namespace baton {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

TEST_F(RouterCoreTest, PrefillDiesBeforeTokenOne) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const WorkerName first = h.At(h.PrefillLeg()).worker;
  h.Ticket(h.PrefillLeg());
  h.End(h.PrefillLeg(), absl::UnavailableError("broken"));
  EXPECT_NE(h.At(h.PrefillLeg()).worker.address, first.address);
  EXPECT_EQ(h.At(h.PrefillLeg()).prefill_request.attempt(), 1u);
  EXPECT_EQ(h.DecodeLeg(), 0u);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 1u);
}

// Three workers of each role. Two of them fail the request, so it must find the third.
TEST_F(RouterCoreTest, ARequestRemembersEveryWorkerThatFailedIt) {
  for (const bool colocated : {false, true}) {
    SCOPED_TRACE(colocated);
    CoreHarness hub;
    for (int i = 1; i <= 3; ++i) {
      hub.Attach(v1::WORKER_ROLE_PREFILL, absl::StrCat("p", i, ":1"), i);
      hub.Attach(v1::WORKER_ROLE_DECODE, absl::StrCat("d", i, ":1"), 10 + i, {1, 2, 3});
    }
    CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
    if (colocated) request.mode = ServingMode::kColocated;
    const RequestKey r = hub.Arrive(std::move(request));
    std::set<std::string> tried;
    for (int attempt = 0; attempt < 3; ++attempt) {
      hub.Advance(absl::Milliseconds(100));
      const LegKey leg = colocated ? hub.DecodeLeg() : hub.PrefillLeg();
      ASSERT_NE(leg, 0u);
      tried.insert(hub.At(leg).worker.address);
      if (attempt < 2) hub.End(leg, absl::UnavailableError("broken"));
    }
    EXPECT_EQ(tried.size(), 3u);
    if (colocated) {
      hub.FinishDecode(hub.DecodeLeg());
    } else {
      hub.RunToEnd();
    }
    EXPECT_TRUE(hub.clients.at(r).status->ok());
  }
}

TEST_F(RouterCoreTest, PrefillDiesAfterTokenOneAndNothingIsShownTwice) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  EXPECT_EQ(client(r).tokens.size(), 1u);
  h.End(h.PrefillLeg(), absl::UnavailableError("broken"));
  // The next prefill worker gets the five tokens of the prompt, and the one token of the answer
  // that the client was shown.
  EXPECT_EQ(h.At(h.PrefillLeg()).tokens().size(), 6u);
  EXPECT_EQ(h.At(h.PrefillLeg()).prompt(), 5u);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, PrefillDiesAfterTheHandOverAndNobodyMinds) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);
  h.End(h.PrefillLeg(), absl::UnavailableError("broken"));
  EXPECT_EQ(h.PrefillLeg(), 0u);
  h.Tokens(h.DecodeLeg(), 2, 4);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 0u);
}

TEST_F(RouterCoreTest, AFullDecodeWorkerPassesTheTicketOn) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  const std::string full = h.At(h.DecodeLeg()).worker.address;
  h.End(h.DecodeLeg(), absl::ResourceExhaustedError("full"));
  const OpenLeg& second = h.At(h.DecodeLeg());
  EXPECT_NE(second.worker.address, full);
  EXPECT_EQ(second.decode_request.attempt(), 1u);
  EXPECT_EQ(second.decode_request.ticket().handover_id(), prefill);
  h.First(prefill);
  h.Tokens(h.DecodeLeg(), 0, 6);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 0u);
}

TEST_F(RouterCoreTest, WhileAllDecodeWorkersAreFullPrefillTakesNothingNew) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.First(prefill);
  h.End(h.DecodeLeg(), absl::ResourceExhaustedError("full"));
  h.End(h.DecodeLeg(), absl::ResourceExhaustedError("full"));
  EXPECT_EQ(h.DecodeLeg(), 0u);
  const RequestKey waits = h.Arrive(Prompt(7), 2);
  EXPECT_EQ(h.legs.size(), 1u);
  EXPECT_EQ(h.core.queued(), 1u);
  EXPECT_TRUE(client(r).tokens.empty());
  h.Advance(absl::Milliseconds(50));
  ASSERT_NE(h.DecodeLeg(), 0u) << "room is asked for again";
  EXPECT_EQ(h.At(h.DecodeLeg()).decode_request.attempt(), 2u);
  EXPECT_EQ(h.core.queued(), 1u);
  h.Reserve(h.DecodeLeg());
  EXPECT_EQ(client(r).tokens.size(), 1u);
  EXPECT_EQ(h.core.queued(), 0u);
  h.Tell(ClientCancelled{waits});
  h.Tokens(h.DecodeLeg(), 0, 6);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, TheWaitForRoomIsBoundedOverLeasesThatRunOut) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  int leases = 0;
  LegKey ticketed = 0;
  absl::Time lease_end;
  for (int tries = 0; tries < 100000 && !client(r).status; ++tries) {
    const LegKey prefill = h.PrefillLeg();
    if (prefill != 0 && prefill != ticketed) {
      h.Ticket(prefill);
      ticketed = prefill;
      lease_end = h.now + absl::Seconds(10);
    } else if (prefill != 0 && h.now >= lease_end) {
      h.End(prefill, absl::FailedPreconditionError("the lease ran out"));
      ++leases;
    }
    if (h.DecodeLeg() != 0) h.End(h.DecodeLeg(), absl::ResourceExhaustedError("full"));
    h.Advance(absl::Milliseconds(10));
    h.ReportAll();
  }
  ExpectFailed(r, Code::kResourceExhausted, "no decode worker had room");
  EXPECT_TRUE(RetryAfter(*client(r).status)) << *client(r).status;
  EXPECT_GT(leases, 1);
  EXPECT_LT(leases, 6);
  EXPECT_TRUE(AtRest());
}

TEST_F(RouterCoreTest, TheWaitForRoomIsBounded) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  for (int tries = 0; tries < 100000 && !client(r).status; ++tries) {
    if (h.DecodeLeg() != 0) h.End(h.DecodeLeg(), absl::ResourceExhaustedError("full"));
    h.Advance(absl::Milliseconds(10));
    h.ReportAll();
  }
  ExpectFailed(r, Code::kResourceExhausted, "no decode worker had room");
  EXPECT_TRUE(RetryAfter(*client(r).status)) << *client(r).status;
  EXPECT_TRUE(AtRest());
}

// room_wait limits only the time in which a ticket waits for a decode worker. It does not cover the
// time in which another prefill worker computes the prompt after a loss.
TEST_F(RouterCoreTest, AWaitForRoomDoesNotGoOnWhileThePromptIsComputedAgain) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const auto wait = [&](absl::Duration time) {
    for (const absl::Time end = h.now + time; h.now < end && !client(r).status;) {
      h.Advance(absl::Milliseconds(10));
      h.ReportAll();
    }
  };
  const auto refuse_all = [&](absl::Duration time) {
    for (const absl::Time end = h.now + time; h.now < end && !client(r).status;) {
      if (h.DecodeLeg() != 0) h.End(h.DecodeLeg(), absl::ResourceExhaustedError("full"));
      wait(absl::Milliseconds(10));
    }
  };
  h.Ticket(h.PrefillLeg());
  refuse_all(absl::Seconds(1));
  h.End(h.PrefillLeg(), absl::UnavailableError("gone"));
  wait(absl::Seconds(35));
  ASSERT_FALSE(client(r).status) << *client(r).status;
  ASSERT_NE(h.PrefillLeg(), 0u);
  h.Ticket(h.PrefillLeg());
  refuse_all(absl::Seconds(5));
  EXPECT_FALSE(client(r).status) << *client(r).status;
  wait(absl::Seconds(1));
  h.First(h.PrefillLeg());
  h.FinishDecode(h.DecodeLeg());
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
}

TEST_F(RouterCoreTest, AFullPrefillWorkerIsNoMigration) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const std::string full = h.At(h.PrefillLeg()).worker.address;
  h.End(h.PrefillLeg(), absl::ResourceExhaustedError("queue of 64 is full"));
  EXPECT_NE(h.At(h.PrefillLeg()).worker.address, full);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 0u);
}

TEST_F(RouterCoreTest, ARefusedAttemptLeavesNothingToTheNext) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.First(
      // This worker breaks the protocol: it sends a first token without a ticket, and after that it
      // refuses the prompt with ResourceExhausted.
      h.PrefillLeg());
  h.End(h.PrefillLeg(), absl::ResourceExhaustedError("full"));
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 0u);
  EXPECT_EQ(h.core.counters().data_loss, 0u) << "its first token was taken for a second one";
}

TEST_F(RouterCoreTest, PrefillWorkersThatStayFullAreGivenUpOn) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  for (int tries = 0; tries < 100000 && !client(r).status; ++tries) {
    if (h.PrefillLeg() != 0) h.End(h.PrefillLeg(), absl::ResourceExhaustedError("queue is full"));
    h.Advance(absl::Milliseconds(10));
    h.ReportAll();
  }
  ExpectFailed(r, Code::kResourceExhausted, "queue is full");
  EXPECT_TRUE(AtRest());
}

class BackToPrefillTest : public RouterCoreTest,
                          public ::testing::WithParamInterface<absl::Status> {};

TEST_P(BackToPrefillTest, FromTheTicketOn) {
  for (int shown = -1; shown < 5; ++shown) {
    CoreHarness w;
    w.AttachFour();
    const RequestKey r = w.Arrive(Prompt(5), 6);
    const std::string prefill = w.At(w.PrefillLeg()).worker.address;
    w.Ticket(w.PrefillLeg());
    if (shown >= 0) w.First(w.PrefillLeg());
    if (shown == 0) w.Reserve(w.DecodeLeg());
    if (shown > 0) w.Tokens(w.DecodeLeg(), 0, shown);
    const std::string decode = w.At(w.DecodeLeg()).worker.address;
    w.End(w.DecodeLeg(), GetParam());
    ASSERT_NE(w.PrefillLeg(), 0u);
    EXPECT_NE(w.At(w.PrefillLeg()).worker.address, prefill);
    EXPECT_EQ(w.At(w.PrefillLeg()).tokens().size(),
              5u + static_cast<size_t>(shown < 0 ? 0 : std::max(shown, 1)));
    w.Ticket(w.PrefillLeg());
    EXPECT_NE(w.At(w.DecodeLeg()).worker.address, decode);
    w.First(w.PrefillLeg());
    const int left = 6 - (shown < 0 ? 0 : std::max(shown, 1));
    w.Tokens(w.DecodeLeg(), 0, left);
    w.Finish(w.DecodeLeg());
    EXPECT_EQ(w.clients.at(r).tokens, Continuation(Prompt(5), 6));
    ASSERT_TRUE(w.clients.at(r).summary);
    EXPECT_EQ(w.clients.at(r).summary->migrations, 1u);
    EXPECT_EQ(w.core.legs(), 0u);
    EXPECT_EQ(w.core.counters().data_loss, GetParam().code() == Code::kDataLoss ? 1u : 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Statuses, BackToPrefillTest,
                         ::testing::Values(absl::FailedPreconditionError("ticket expired"),
                                           absl::DataLossError("checksum"),
                                           absl::UnavailableError("broken"),
                                           absl::DeadlineExceededError("no slice for 5s"),
                                           absl::CancelledError("killed"),
                                           absl::InternalError("bug"), absl::OkStatus()));

TEST_F(RouterCoreTest, InvalidArgumentOfThreeWorkersGoesToTheClient) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const std::string first = h.At(h.PrefillLeg()).worker.address;
  h.End(h.PrefillLeg(), absl::InvalidArgumentError("never fits: 99 of 10"));
  ASSERT_NE(h.PrefillLeg(), 0u);
  EXPECT_NE(h.At(h.PrefillLeg()).worker.address, first);
  h.Ticket(h.PrefillLeg());
  h.End(h.DecodeLeg(), absl::InvalidArgumentError("never fits there"));
  h.Advance(absl::Seconds(1));
  h.ReportAll();
  ASSERT_NE(h.PrefillLeg(), 0u);
  h.Ticket(h.PrefillLeg());
  h.End(h.DecodeLeg(), absl::InvalidArgumentError("nor here"));
  ExpectFailed(r, Code::kInvalidArgument, "nor here");
  EXPECT_TRUE(AtRest());
}

TEST_F(RouterCoreTest, MigrationsAreBounded) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_migrations = 3;
  CoreHarness w(options);
  w.AttachFour();
  const RequestKey r = w.Arrive(Prompt(5), 6);
  for (int i = 0; i < 4; ++i) {
    ASSERT_NE(w.PrefillLeg(), 0u) << i;
    w.End(w.PrefillLeg(), absl::UnavailableError("broken"));
    w.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(w.clients.at(r).status->code(), Code::kUnavailable);
  EXPECT_THAT(std::string(w.clients.at(r).status->message()), HasSubstr("gave up after 3"));
}

TEST_F(RouterCoreTest, AnOutgrownSequenceGoesBackToPrefillAndNobodyHasFailed) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_migrations = 0;
  CoreHarness w(options);
  // The router has only one pair of workers, so the retry goes to the same pair.
  w.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  w.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  const RequestKey r = w.Arrive(Prompt(5), 12);
  for (const int shown : {1, 7}) {
    w.Ticket(w.PrefillLeg());
    w.First(w.PrefillLeg());
    w.Reserve(w.DecodeLeg());
    w.Tokens(w.DecodeLeg(), 0, shown);
    w.Outgrow(w.DecodeLeg());
    EXPECT_EQ(w.DecodeLeg(), 0u);
    // The retry begins without a pause, with all tokens that the client was shown.
    ASSERT_NE(w.PrefillLeg(), 0u);
    EXPECT_EQ(w.At(w.PrefillLeg()).prompt(), 5u);
  }
  EXPECT_EQ(w.At(w.PrefillLeg()).tokens().size(), 13u);
  w.RunToEnd();
  const ClientSide& client = w.clients.at(r);
  EXPECT_TRUE(client.status->ok()) << *client.status;
  EXPECT_EQ(client.tokens, Continuation(Prompt(5), 12));
  EXPECT_EQ(client.summary->migrations, 0u);
  EXPECT_EQ(w.core.counters().migrations, 0u);
  EXPECT_EQ(w.core.counters().outgrown, 2u);
}

TEST_F(RouterCoreTest, OutgrownAgainBeforeTheLengthHasDoubledIsAFailure) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 12);
  for (const int shown : {2, 5}) {  // lengths 7 and 12
    EXPECT_EQ(h.core.counters().data_loss, 0u);
    h.Ticket(h.PrefillLeg());
    h.First(h.PrefillLeg());
    h.Reserve(h.DecodeLeg());
    h.Tokens(h.DecodeLeg(), 0, shown);
    h.Outgrow(h.DecodeLeg());
  }
  EXPECT_EQ(h.core.counters().data_loss, 1u);
  EXPECT_EQ(h.core.counters().outgrown, 1u);
  h.RunToEnd();
  EXPECT_EQ(h.clients.at(r).tokens, Continuation(Prompt(5), 12));
}

TEST_F(RouterCoreTest, OutgrownWithoutATokenIsAFailure) {
  h.AttachFour();
  h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  h.Outgrow(h.DecodeLeg());
  EXPECT_EQ(h.core.counters().data_loss, 1u);
  EXPECT_EQ(h.core.counters().outgrown, 0u);
  EXPECT_EQ(h.core.counters().migrations, 1u);
}

TEST_F(RouterCoreTest, AnAnswerThatIsAllThereNeedsNoWorkerToEnd) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Tokens(h.DecodeLeg(), 0, 6);
  h.End(h.DecodeLeg(), absl::UnavailableError("killed before its last word"));
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).finished->reason, v1::FINISH_REASON_LENGTH);

  CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
  request.sampling.stop_tokens = {Continuation(Prompt(5), 3)[2]};
  const RequestKey s = h.Arrive(request);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.End(h.DecodeLeg(), absl::UnavailableError("killed before its last word"));
  ExpectAnswer(s, 5, 3);
  EXPECT_EQ(client(s).finished->reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(client(s).finished->stop_token, request.sampling.stop_tokens[0]);
}

TEST_F(RouterCoreTest, AWorkerThatIsSilentAndWithoutReportsCountsAsDead) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  ASSERT_EQ(h.At(prefill).worker.address, "p1:1");
  for (int s = 0; s < 5; ++s) {
    h.Advance(absl::Seconds(1) - absl::Microseconds(1));
    for (const AttachKey other : {h.p2, h.d1, h.d2}) h.Report(other);
    EXPECT_EQ(h.PrefillLeg(), prefill);
  }
  h.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h.At(h.PrefillLeg()).worker.address, "p2:1");
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, ASilentLegWaitsInTheQueueOfAWorkerThatReports) {
  h.AttachFour();
  for (auto& [key, load] : h.loads) load.set_waiting(1);
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  for (int s = 0; s < 60; ++s) {
    h.Advance(absl::Seconds(1));
    h.ReportAll();
  }
  EXPECT_EQ(h.PrefillLeg(), prefill);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, WhenTheRouterItselfSleptNobodyElseIsBlamed) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const LegKey prefill = h.PrefillLeg();
  h.now += absl::Seconds(60);
  h.Tell(Overslept{absl::Seconds(60)});
  EXPECT_EQ(h.PrefillLeg(), prefill);
  EXPECT_TRUE(h.serving.serving);
  h.ReportAll();
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 0u);
}

TEST_F(RouterCoreTest, ATicketThatNobodyCanPullMovesToAnotherPrefillWorker) {
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h.p2 = h.Attach(v1::WORKER_ROLE_PREFILL, "p2:1", 2);
  h.d1 = h.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  h.d2 = h.Attach(v1::WORKER_ROLE_DECODE, "d2:1", 12, {2});
  const RequestKey r = h.Arrive(Prompt(5), 6);
  ASSERT_EQ(h.At(h.PrefillLeg()).worker.address, "p1:1");
  h.Tell(WorkerDetached{h.d1});
  h.Ticket(h.PrefillLeg());
  EXPECT_EQ(h.DecodeLeg(), 0u) << "d2 has not proven its link to p1";
  for (int i = 0; i < 40; ++i) {
    h.Advance(absl::Milliseconds(100));
    for (const AttachKey key : {h.p1, h.p2, h.d2}) h.Report(key);
  }
  EXPECT_EQ(h.At(h.PrefillLeg()).worker.address, "p2:1");
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
}

// A worker's report on the end of an answer must follow from the answer's tokens. A worker that
// reports anything else has lost something, and another worker continues the answer.
class LyingWorkerTest : public RouterCoreTest {
 protected:
  static constexpr int kTokens = 6;
  // The continuation of Prompt(5), which a correct worker sends.
  static std::vector<TokenId> Right() { return Continuation(Prompt(5), kTokens); }

  // Sends a request. With `stops`, the second token of its answer is a stop token.
  RequestKey Ask(bool stops, int min_tokens = 0) {
    h.AttachFour();
    CheckedRequest request = CoreHarness::Request(Prompt(5), kTokens);
    if (stops) request.sampling.stop_tokens = {Right()[1]};
    request.sampling.min_tokens = min_tokens;
    return h.Arrive(std::move(request));
  }
  // Plays a request until the decode worker has sent `tokens` tokens. Returns the leg, which is the
  // RPC to that worker.
  LegKey Decode(int tokens) {
    h.Ticket(h.PrefillLeg());
    h.First(h.PrefillLeg());
    const LegKey leg = h.DecodeLeg();
    h.Reserve(leg);
    if (tokens > 0) h.Tokens(leg, 0, tokens);
    return leg;
  }
  void Finish(LegKey leg, v1::FinishReason reason, std::optional<TokenId> stop_token) {
    v1::DecodeEvent event;
    event.mutable_finished()->set_reason(reason);
    if (stop_token) event.mutable_finished()->set_stop_token_id(*stop_token);
    h.Tell(DecodeSaid{leg, event});
  }
  // Expects that the router has cancelled its RPC to the worker that lied, and counted the fault.
  // The request must go on at another worker with the `shown` tokens that the client has.
  void ExpectFound(RequestKey r, size_t shown) {
    EXPECT_EQ(h.core.counters().data_loss, 1u);
    EXPECT_EQ(h.core.counters().migrations, 1u);
    EXPECT_FALSE(client(r).status);
    ASSERT_NE(h.PrefillLeg(), 0u);
    EXPECT_EQ(h.At(h.PrefillLeg()).worker.address, "p2:1");
    EXPECT_EQ(h.At(h.PrefillLeg()).tokens().size(), 5 + shown);
  }
};

TEST_F(LyingWorkerTest, AStopWithoutAStopToken) {
  const RequestKey r = Ask(false);
  Finish(Decode(3), v1::FINISH_REASON_STOP, std::nullopt);
  ExpectFound(r, 3);
  h.RunToEnd();
  ExpectAnswer(r, 5, kTokens);
}

TEST_F(LyingWorkerTest, AStopByATokenThatIsNone) {
  const RequestKey r = Ask(false);
  Finish(Decode(3), v1::FINISH_REASON_STOP, Right()[2]);
  ExpectFound(r, 3);
}

TEST_F(LyingWorkerTest, AHitOfTheWholePrompt) {
  const RequestKey r = Ask(false);
  h.Ticket(h.PrefillLeg(), /*cached_tokens=*/5);
  ExpectFound(r, 0);
}

TEST_F(LyingWorkerTest, TooFewTokens) {
  const RequestKey r = Ask(false);
  Finish(Decode(4), v1::FINISH_REASON_LENGTH, std::nullopt);
  ExpectFound(r, 4);
  h.RunToEnd();
  ExpectAnswer(r, 5, kTokens);
}

// The worker reports STOP for tokens that imply LENGTH, and the reverse. The answer is complete, so
// it ends as its tokens imply.
TEST_F(LyingWorkerTest, AReasonThatIsNotTheTokens) {
  for (const bool stops : {false, true}) {
    SCOPED_TRACE(stops);
    const RequestKey r = Ask(stops);
    Finish(Decode(stops ? 2 : kTokens), stops ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP,
           std::nullopt);
    EXPECT_EQ(h.core.counters().data_loss, stops ? 2u : 1u);
    ASSERT_TRUE(client(r).status);
    EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
    ASSERT_TRUE(client(r).finished);
    EXPECT_EQ(client(r).finished->reason,
              stops ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(client(r).finished->stop_token.has_value(), stops);
  }
}

TEST_F(LyingWorkerTest, TokensBeyondTheEnd) {
  const RequestKey r = Ask(true);
  Decode(4);
  EXPECT_EQ(h.core.counters().data_loss, 1u);
  ASSERT_TRUE(client(r).status);
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
  EXPECT_EQ(client(r).tokens, Continuation(Prompt(5), 2));
  EXPECT_EQ(client(r).finished->stop_token, Right()[1]);
}

TEST_F(LyingWorkerTest, AStopTokenBeforeMinTokens) {
  const RequestKey r = Ask(true, 3);
  Decode(2);
  ExpectFound(r, 1);
}

TEST_F(LyingWorkerTest, AFirstTokenThatIsSaidToEndTheAnswer) {
  for (const v1::FinishReason reason : {v1::FINISH_REASON_STOP, v1::FINISH_REASON_LENGTH}) {
    SCOPED_TRACE(v1::FinishReason_Name(reason));
    const RequestKey r = Ask(false);
    const uint64_t before = h.core.counters().data_loss;
    const LegKey leg = h.PrefillLeg();
    h.Ticket(leg);
    h.First(leg, reason);
    EXPECT_EQ(h.core.counters().data_loss, before + 1);
    EXPECT_TRUE(client(r).tokens.empty());
    EXPECT_FALSE(client(r).status);
    h.Tell(ClientCancelled{r});
  }
}

TEST_F(LyingWorkerTest, AFirstTokenThatEndsTheAnswerAndIsNotSaidTo) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 1);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  ExpectFound(r, 0);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg(), v1::FINISH_REASON_LENGTH);
  ExpectAnswer(r, 5, 1);
}

TEST_F(RouterCoreTest, ARestartDoesNotMixTwoModels) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  ASSERT_EQ(client(r).tokens.size(), 1u);
  // All workers are replaced by a pair with other weights than those of the workers that began the
  // answer.
  v1::Registration other;
  other.set_protocol_version(kProtocolVersion);
  other.set_model_fingerprint("other");
  other.set_layout_fingerprint("l");
  other.set_numerics_id("n");
  other.set_total_blocks(1024);
  other.set_block_tokens(16);
  other.set_context_tokens(4096);
  other.set_role(v1::WORKER_ROLE_PREFILL);
  other.set_address("p3:1");
  other.set_epoch(3);
  const AttachKey p3 = h.Attach(other);
  other.set_role(v1::WORKER_ROLE_DECODE);
  other.set_address("d3:1");
  other.set_epoch(13);
  const AttachKey d3 = h.Attach(other, {3});
  for (const AttachKey key : {h.p1, h.p2, h.d1, h.d2}) h.Tell(WorkerDetached{key});
  h.End(h.PrefillLeg(), absl::UnavailableError("killed"));
  for (int i = 0; i < 31; ++i) {
    EXPECT_EQ(h.PrefillLeg(), 0u);
    h.Advance(absl::Seconds(1));
    h.Report(p3);
    h.Report(d3);
    EXPECT_EQ(h.serving.serving, i >= 9) << "they are served once they have led for ten seconds";
  }
  ExpectFailed(r, Code::kUnavailable, "begun with");
  // The client of this request was shown no token yet. So workers with other weights than the lost
  // ones may answer it.
  const RequestKey s = h.Arrive(Prompt(5), 6);
  h.RunToEnd();
  ExpectAnswer(s, 5, 6);
}

}  // namespace
}  // namespace baton
