#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/testing/core_harness.h"

// Tests of which worker computes a prompt: disaggregated, colocated, auto.
namespace baton {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Code = absl::StatusCode;

constexpr ServingMode kSplit = ServingMode::kDisaggregated;
constexpr ServingMode kColocated = ServingMode::kColocated;
constexpr ServingMode kAuto = ServingMode::kAuto;

RouterCoreOptions InMode(ServingMode mode) {
  RouterCoreOptions options = CoreHarness::Options();
  options.mode = mode;
  options.auto_prompt_tokens = 8;
  options.auto_queue_tokens = 100;
  return options;
}

class ModesTest : public ::testing::Test {
 protected:
  void Start(ServingMode mode) { h_.emplace(InMode(mode)); }
  void Start(RouterCoreOptions options) { h_.emplace(std::move(options)); }
  RequestKey Ask(int prompt, int max_tokens, ServingMode mode = ServingMode::kUnspecified) {
    CheckedRequest request = CoreHarness::Request(std::vector<TokenId>(prompt, 5), max_tokens);
    request.mode = mode;
    return h_->Arrive(std::move(request));
  }
  // Returns the addresses of the workers to which a Prefill RPC is open or, if `prefill` is false,
  // a Decode RPC.
  std::vector<std::string> At(bool prefill) {
    std::vector<std::string> addresses;
    for (const auto& [key, leg] : h_->legs) {
      if (leg.prefill == prefill) addresses.push_back(leg.worker.address);
    }
    return addresses;
  }
  std::optional<CoreHarness> h_;
};

TEST_F(ModesTest, ColocatedTakesOneLegAndNoTicket) {
  Start(kColocated);
  h_->AttachFour();
  const RequestKey client = Ask(20, 3);
  EXPECT_EQ(h_->PrefillLeg(), 0u);
  const LegKey leg = h_->DecodeLeg();
  ASSERT_NE(leg, 0u);
  EXPECT_FALSE(h_->At(leg).decode_request.has_ticket());
  EXPECT_EQ(h_->At(leg).tokens(), std::vector<TokenId>(20, 5));
  EXPECT_EQ(h_->At(leg).prompt(), 20u);
  h_->Advance(absl::Milliseconds(5));
  h_->Reserve(leg);
  h_->Advance(absl::Milliseconds(7));
  h_->Tokens(leg, 0, 1);
  EXPECT_EQ(h_->clients[client].tokens.size(), 1u);
  h_->Advance(absl::Milliseconds(2));
  h_->Tokens(leg, 1, 2);
  v1::DecodeEvent end;
  end.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  end.mutable_finished()->set_decode_us(2000);
  h_->Tell(DecodeSaid{leg, end});
  const ClientSide& side = h_->clients[client];
  ASSERT_TRUE(side.status) << "unfinished";
  EXPECT_TRUE(side.status->ok()) << *side.status;
  EXPECT_EQ(side.tokens, Continuation(std::vector<TokenId>(20, 5), 3));
  const AnswerSummary& summary = *side.summary;
  EXPECT_EQ(summary.mode, kColocated);
  EXPECT_EQ(summary.prefill_worker, "d1:1");
  EXPECT_EQ(summary.decode_worker, "d1:1");
  EXPECT_EQ(summary.link, "");
  EXPECT_EQ(summary.migrations, 0u);
  EXPECT_EQ(summary.timing.queue_us, 5000u);
  EXPECT_EQ(summary.timing.prefill_us, 7000u);
  EXPECT_EQ(summary.timing.handover_hidden_us + summary.timing.handover_exposed_us, 0u);
  EXPECT_EQ(summary.timing.decode_us, 2000u);
  EXPECT_EQ(summary.timing.ttft_us, 12000u);
  EXPECT_EQ(summary.timing.total_us, 14000u);
  EXPECT_EQ(h_->core.counters().colocated, 1u);
}

TEST_F(ModesTest, DisaggregatedSaysSoInItsSummary) {
  Start(kSplit);
  h_->AttachFour();
  const RequestKey client = Ask(20, 3);
  h_->RunToEnd();
  EXPECT_EQ(h_->clients[client].summary->mode, kSplit);
  EXPECT_EQ(h_->core.counters().colocated, 0u);
}

TEST_F(ModesTest, ARequestMayNameAnotherMode) {
  Start(kSplit);
  h_->AttachFour();
  Ask(20, 3, kColocated);
  EXPECT_EQ(h_->PrefillLeg(), 0u);
  EXPECT_NE(h_->DecodeLeg(), 0u);
  Start(kColocated);
  h_->AttachFour();
  Ask(20, 3, kSplit);
  EXPECT_NE(h_->PrefillLeg(), 0u);
  EXPECT_EQ(h_->DecodeLeg(), 0u);
}

TEST_F(ModesTest, DecodeWorkersAloneServeColocated) {
  Start(kColocated);
  EXPECT_FALSE(h_->serving.serving);
  const RequestKey early = Ask(4, 2);
  h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  EXPECT_TRUE(h_->serving.serving);
  EXPECT_EQ(h_->serving.context_tokens, 4096);
  h_->FinishDecode(h_->DecodeLeg());
  EXPECT_TRUE(h_->clients[early].status->ok());
  // A request that asks for disaggregated mode still needs a pair.
  const RequestKey split = Ask(4, 2, kSplit);
  for (int i = 0; i < 31; ++i) {
    h_->Advance(absl::Seconds(1));
    h_->ReportAll();
  }
  EXPECT_EQ(h_->clients[split].status->code(), Code::kUnavailable);
  EXPECT_THAT(h_->clients[split].status->message(), HasSubstr("no prefill worker is attached"));
}

TEST_F(ModesTest, WithoutDecodeWorkersNobodyServes) {
  for (const ServingMode mode : {kColocated, kAuto}) {
    Start(mode);
    h_->Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
    EXPECT_FALSE(h_->serving.serving);
    const RequestKey client = Ask(4, 2);
    for (int i = 0; i < 31; ++i) {
      h_->Advance(absl::Seconds(1));
      h_->ReportAll();
    }
    EXPECT_EQ(h_->clients[client].status->code(), Code::kUnavailable);
    EXPECT_THAT(h_->clients[client].status->message(), HasSubstr("no decode worker is attached"));
  }
}

TEST_F(ModesTest, ColocatedPromptsGoWhereLeastIsToCompute) {
  Start(kColocated);
  h_->AttachFour();
  Ask(100, 4);
  Ask(10, 4);
  Ask(10, 4);
  EXPECT_THAT(At(false), ElementsAre("d1:1", "d2:1", "d2:1"));
  // The sequences that a worker runs count as its load too, also those of other routers.
  Start(kColocated);
  h_->AttachFour();
  h_->loads[h_->d1].set_running(20);
  h_->ReportAll();
  Ask(10, 4);
  EXPECT_THAT(At(false), ElementsAre("d2:1"));
}

TEST_F(ModesTest, WithRoundRobinColocatedPromptsGoToEachWorkerInTurn) {
  RouterCoreOptions options = InMode(kColocated);
  options.policy = RoutingPolicyKind::kRoundRobin;
  Start(options);
  h_->AttachFour();
  Ask(100, 4);
  Ask(10, 4);
  Ask(10, 4);
  Ask(10, 4);
  EXPECT_THAT(At(false), ElementsAre("d1:1", "d2:1", "d1:1", "d2:1"));
}

TEST_F(ModesTest, AutoSplitsLongPromptsAndKeepsShortOnesWhereTheyDecode) {
  Start(kAuto);
  h_->AttachFour();
  Ask(8, 4);
  EXPECT_THAT(At(false), ElementsAre("d1:1"));
  EXPECT_THAT(At(true), ElementsAre());
  Ask(9, 4);
  EXPECT_THAT(At(true), ElementsAre("p1:1"));
}

TEST_F(ModesTest, AutoGoesToDecodeWorkersWhenThePrefillQueueIsFull) {
  Start(kAuto);
  h_->AttachFour();
  Ask(101, 4);
  Ask(101, 4);
  // Now both prefill workers, p1 and p2, have more than auto_queue_tokens (100) tokens to compute.
  EXPECT_THAT(At(true), ElementsAre("p1:1", "p2:1"));
  const RequestKey client = Ask(50, 4);
  EXPECT_THAT(At(false), ElementsAre("d1:1"));
  h_->FinishDecode(h_->DecodeLeg());
  EXPECT_EQ(h_->clients[client].summary->mode, kColocated);
  // While every decode worker has max_prompts_per_worker prompts, a prefill worker gets the
  // request, although more than auto_queue_tokens tokens wait at that worker.
  RouterCoreOptions options = InMode(kAuto);
  options.max_prompts_per_worker = 2;
  Start(options);
  h_->AttachFour();
  for (int i = 0; i < 8; ++i) Ask(101, 4);
  EXPECT_EQ(At(true).size(), 4u);
  EXPECT_EQ(At(false).size(), 4u);
  Ask(101, 4);
  EXPECT_EQ(h_->legs.size(), 8u);
  EXPECT_EQ(h_->core.queued(), 1u);
}

TEST_F(ModesTest, AutoServesWhilePrefillWorkersAreGone) {
  Start(kAuto);
  h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  EXPECT_TRUE(h_->serving.serving);
  const RequestKey client = Ask(500, 2);
  h_->FinishDecode(h_->DecodeLeg());
  EXPECT_TRUE(h_->clients[client].status->ok());
}

// Requests that need no pair overtake requests that wait for a pair.
TEST_F(ModesTest, WhoNeedsAPairIsPassedOver) {
  Start(kSplit);
  h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  Ask(20, 3);
  Ask(20, 3, kColocated);
  EXPECT_THAT(At(false), ElementsAre("d1:1"));
  EXPECT_EQ(h_->core.queued(), 1u);
}

// A request whose KV waits for a decode worker with free blocks holds up only requests that might
// compete for the same blocks.
TEST_F(ModesTest, AWaitForRoomHoldsUpOnlyWhatWantsTheSame) {
  Start(kSplit);
  constexpr auto kPrefill = v1::WORKER_ROLE_PREFILL, kDecode = v1::WORKER_ROLE_DECODE;
  // Two groups of workers without a link between them.
  h_->Attach(CoreHarness::WorkerOf(kPrefill, "a1:1", 1));
  h_->Attach(CoreHarness::WorkerOf(kPrefill, "a2:1", 2));
  h_->Attach(CoreHarness::WorkerOf(kDecode, "ad:1", 11), {1, 2});
  h_->Attach(CoreHarness::WorkerOf(kPrefill, "b1:1", 3));
  h_->Attach(CoreHarness::WorkerOf(kDecode, "bd:1", 12));  // This worker has no link yet.
  Ask(20, 3);
  h_->Ticket(h_->PrefillLeg());
  h_->End(h_->DecodeLeg(), absl::ResourceExhaustedError("full"));
  Ask(20, 3);  // Queued, because both prefill workers with a link send to the full decode worker.
  Ask(20, 3, kColocated);  // Runs, because the decode worker bd:1 is free.
  EXPECT_EQ(At(true).size(), 1u);
  EXPECT_THAT(At(false), ElementsAre("bd:1"));
  EXPECT_EQ(h_->core.queued(), 1u);
  h_->Attach(CoreHarness::WorkerOf(kDecode, "bd:2", 13), {3});
  h_->Advance(absl::ZeroDuration());
  EXPECT_THAT(At(true), UnorderedElementsAre(AnyOf("a1:1", "a2:1"), "b1:1"));
  EXPECT_EQ(h_->core.queued(), 0u);
}

TEST_F(ModesTest, AFullDecodeWorkerIsNoFailure) {
  Start(kColocated);
  h_->AttachFour();
  const RequestKey client = Ask(20, 3);
  const LegKey first = h_->DecodeLeg();
  h_->End(first, absl::ResourceExhaustedError("decode inbox is full"));
  const LegKey second = h_->DecodeLeg();
  ASSERT_NE(second, 0u);
  EXPECT_EQ(h_->At(second).worker.address, "d2:1");
  h_->End(second, absl::ResourceExhaustedError("decode inbox is full"));
  EXPECT_EQ(h_->DecodeLeg(), 0u);
  h_->Advance(absl::Milliseconds(21));
  ASSERT_NE(h_->DecodeLeg(), 0u);
  h_->FinishDecode(h_->DecodeLeg());
  EXPECT_TRUE(h_->clients[client].status->ok());
  EXPECT_EQ(h_->clients[client].summary->migrations, 0u);
  EXPECT_EQ(h_->core.counters().decode_refused, 2u);
}

TEST_F(ModesTest, FullForTooLongEndsInResourceExhausted) {
  Start(kColocated);
  h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  const RequestKey client = Ask(20, 3);
  for (int i = 0; i < 2000 && !h_->clients[client].status; ++i) {
    if (h_->DecodeLeg() != 0) {
      h_->End(h_->DecodeLeg(), absl::ResourceExhaustedError("decode inbox is full"));
    }
    h_->Advance(absl::Milliseconds(20));
    h_->ReportAll();
  }
  ASSERT_TRUE(h_->clients[client].status);
  EXPECT_EQ(h_->clients[client].status->code(), Code::kResourceExhausted);
}

// A request that was already sent to a worker goes ahead of requests that have only waited.
TEST_F(ModesTest, WhoComesBackIsServedBeforeNewOnes) {
  for (const bool full : {true, false}) {
    RouterCoreOptions options = InMode(kColocated);
    options.max_prompts_per_worker = 1;
    Start(options);
    h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
    Ask(20, 3);
    for (int i = 0; i < 5; ++i) Ask(30, 3);
    const LegKey first = h_->DecodeLeg();
    ASSERT_EQ(h_->At(first).tokens().size(), 20u);
    if (full) {
      h_->End(first, absl::ResourceExhaustedError("decode inbox is full"));
      h_->Advance(absl::Milliseconds(21));
    } else {
      h_->Reserve(first);
      h_->End(first, absl::UnavailableError("gone"));
    }
    ASSERT_NE(h_->DecodeLeg(), 0u);
    EXPECT_EQ(h_->At(h_->DecodeLeg()).tokens().size(), 20u);
  }
}

TEST_F(ModesTest, AutoLeavesAPrefillWorkerThatFailsWhereThereIsNoOther) {
  Start(kAuto);
  h_->p1 = h_->Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h_->d1 = h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  const RequestKey client = Ask(20, 6);
  h_->End(h_->PrefillLeg(), absl::InternalError("no numbers"));
  EXPECT_EQ(h_->PrefillLeg(), 0u);
  h_->FinishDecode(h_->DecodeLeg());
  EXPECT_TRUE(h_->clients[client].status->ok());
}

// Between two reports, the queue of a worker is estimated: the open prompts of this router, plus
// the load of other routers in the last report.
TEST_F(ModesTest, AReportThatAgesDoesNotKeepAPrefillWorkerBusy) {
  Start(kAuto);
  h_->p1 = h_->Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h_->d1 = h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  const RequestKey first = Ask(150, 4);
  h_->loads[h_->p1].set_waiting_tokens(150);  // All 150 tokens come from this router.
  h_->Report(h_->p1);
  Ask(50, 4);
  EXPECT_THAT(At(false), ElementsAre("d1:1"));
  h_->RunToEnd(h_->PrefillLeg());
  ASSERT_TRUE(h_->clients[first].status);
  Ask(50, 4);  // The last report says 150 tokens, but the worker is idle.
  EXPECT_THAT(At(true), ElementsAre("p1:1"));
  h_->loads[h_->p1].set_waiting_tokens(1050);  // Another router sent 1,000 of these.
  h_->Report(h_->p1);
  Ask(60, 4);
  EXPECT_THAT(At(true), ElementsAre("p1:1"));
  EXPECT_EQ(At(false).size(), 2u);
}

TEST_F(ModesTest, ALostWorkerCostsAPauseInEveryPhase) {
  // `tokens` is the number of answer tokens that came before the worker was lost. 0: the worker had
  // only begun the prompt; -1: not even the prompt.
  for (const int tokens : {-1, 0, 1, 4}) {
    Start(kColocated);
    h_->AttachFour();
    const RequestKey client = Ask(20, 6);
    const LegKey lost = h_->DecodeLeg();
    if (tokens >= 0) h_->Reserve(lost);
    if (tokens > 0) h_->Tokens(lost, 0, tokens);
    h_->Advance(absl::Milliseconds(3));
    h_->End(lost, absl::UnavailableError("gone"));
    const LegKey next = h_->DecodeLeg();
    ASSERT_NE(next, 0u);
    EXPECT_EQ(h_->At(next).worker.address, "d2:1");
    EXPECT_EQ(h_->At(next).tokens().size(), 20u + std::max(tokens, 0));
    EXPECT_EQ(h_->At(next).prompt(), 20u);
    h_->FinishDecode(next);
    const ClientSide& side = h_->clients[client];
    EXPECT_TRUE(side.status->ok()) << *side.status;
    EXPECT_EQ(side.tokens, Continuation(std::vector<TokenId>(20, 5), 6));
    EXPECT_EQ(side.summary->migrations, 1u);
    const PhaseMicros& t = side.summary->timing;
    EXPECT_EQ(t.queue_us + t.prefill_us + t.decode_us, 3000u + 40) << tokens;
  }
}

TEST_F(ModesTest, AutoMovesBetweenModesWhenItMust) {
  Start(kAuto);
  h_->p1 = h_->Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h_->d1 = h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  const RequestKey client = Ask(20, 6);
  const LegKey prefill = h_->PrefillLeg();
  h_->Ticket(prefill);
  h_->First(prefill);
  h_->Reserve(h_->DecodeLeg());
  h_->Tell(WorkerDetached{h_->p1});
  h_->End(prefill, absl::UnavailableError("gone"));
  const LegKey colocated = h_->DecodeLeg();
  ASSERT_NE(colocated, 0u);
  EXPECT_FALSE(h_->At(colocated).decode_request.has_ticket());
  h_->FinishDecode(colocated);
  const ClientSide& side = h_->clients[client];
  EXPECT_TRUE(side.status->ok()) << *side.status;
  EXPECT_EQ(side.tokens, Continuation(std::vector<TokenId>(20, 5), 6));
  EXPECT_EQ(side.summary->mode, kColocated);
}

TEST_F(ModesTest, OutgrownGoesOnWithTheWholeSequence) {
  Start(kColocated);
  h_->AttachFour();
  const RequestKey client = Ask(20, 6);
  const LegKey leg = h_->DecodeLeg();
  h_->Reserve(leg);
  h_->Tokens(leg, 0, 2);
  h_->Outgrow(leg);
  const LegKey next = h_->DecodeLeg();
  ASSERT_NE(next, 0u);
  EXPECT_EQ(h_->At(next).tokens().size(), 22u);
  h_->FinishDecode(next);
  EXPECT_EQ(h_->clients[client].tokens, Continuation(std::vector<TokenId>(20, 5), 6));
  EXPECT_EQ(h_->clients[client].summary->migrations, 0u);
  EXPECT_EQ(h_->core.counters().outgrown, 1u);
}

TEST_F(ModesTest, LogprobsOfThePromptComeFromTheDecodeWorker) {
  Start(kColocated);
  h_->AttachFour();
  CheckedRequest request = CoreHarness::Request({1, 2, 3, 4, 5}, 2);
  request.sampling.prompt_logprobs = 0;
  const RequestKey client = h_->Arrive(request);
  LegKey leg = h_->DecodeLeg();
  h_->Reserve(leg);
  h_->Scores(leg, 0, 3);
  h_->End(leg, absl::UnavailableError("gone"));
  leg = h_->DecodeLeg();
  ASSERT_TRUE(h_->At(leg).decode_request.sampling().has_prompt_logprobs());
  h_->Reserve(leg);
  h_->Scores(leg, 0, 5);
  h_->Tokens(leg, 0, 2);
  h_->Finish(leg);
  const ClientSide& side = h_->clients[client];
  EXPECT_TRUE(side.status->ok()) << *side.status;
  ASSERT_EQ(side.scores.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(side.scores[i].position(), i);
  EXPECT_EQ(side.tokens.size(), 2u);
}

TEST_F(ModesTest, OnceScoredAPromptIsNotScoredAgain) {
  Start(kColocated);
  h_->AttachFour();
  CheckedRequest request = CoreHarness::Request({1, 2, 3}, 2);
  request.sampling.prompt_logprobs = 0;
  h_->Arrive(request);
  const LegKey leg = h_->DecodeLeg();
  h_->Reserve(leg);
  h_->Scores(leg, 0, 3);
  h_->End(leg, absl::UnavailableError("gone"));
  EXPECT_FALSE(h_->At(h_->DecodeLeg()).decode_request.sampling().has_prompt_logprobs());
}

TEST_F(ModesTest, WorkersThatBreakTheProtocolAreLeft) {
  Start(kColocated);
  h_->AttachFour();
  CheckedRequest request = CoreHarness::Request({1, 2, 3}, 2);
  request.sampling.prompt_logprobs = 0;
  h_->Arrive(request);
  const LegKey early = h_->DecodeLeg();
  h_->Reserve(early);
  h_->Scores(early, 0, 2);
  h_->Tokens(early, 0, 1);  // Too early: one logprob of the prompt is still missing.
  EXPECT_EQ(h_->core.counters().data_loss, 1u);
  EXPECT_EQ(h_->At(h_->DecodeLeg()).worker.address, "d2:1");

  Start(kSplit);
  h_->AttachFour();
  Ask(20, 3);
  const LegKey prefill = h_->PrefillLeg();
  h_->Ticket(prefill);
  // This is an error: the decode worker did not compute this prompt.
  h_->Scores(h_->DecodeLeg(), 0, 2);
  EXPECT_EQ(h_->core.counters().data_loss, 1u);
}

TEST_F(ModesTest, ASilentWorkerIsLeft) {
  Start(kColocated);
  h_->AttachFour();
  Ask(20, 3);
  ASSERT_EQ(h_->At(h_->DecodeLeg()).worker.address, "d1:1");
  for (int i = 0; i < 9; ++i) {
    h_->Advance(absl::Seconds(1));
    h_->Report(h_->d2);
  }
  EXPECT_EQ(h_->At(h_->DecodeLeg()).worker.address, "d2:1");
}

TEST_F(ModesTest, ThePlaceIsFreeAgainAfterTheFirstToken) {
  RouterCoreOptions options = InMode(kColocated);
  options.max_prompts_per_worker = 1;
  Start(options);
  h_->Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  Ask(20, 3);
  Ask(30, 3);
  ASSERT_EQ(h_->legs.size(), 1u);
  const LegKey first = h_->DecodeLeg();
  h_->Reserve(first);
  EXPECT_EQ(h_->legs.size(), 1u);
  h_->Tokens(first, 0, 1);
  EXPECT_EQ(h_->legs.size(), 2u);
}

TEST_F(ModesTest, AnAnswerLongerThanTheWorkersTakeIsRefused) {
  Start(kAuto);
  h_->AttachFour();
  const RequestKey client = Ask(4000, 100);
  EXPECT_EQ(h_->clients[client].status->code(), Code::kInvalidArgument);
  EXPECT_THAT(h_->clients[client].status->message(), HasSubstr("the workers take 4096 tokens"));
}

}  // namespace
}  // namespace baton
