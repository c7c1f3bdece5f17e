#include "router/testing/router_core_fixture.h"

// Tests of the path of one request, and of the order of its tokens.
namespace baton {
namespace {

using Code = absl::StatusCode;

TEST_F(RouterCoreTest, AnAnswerComesThroughBothLegs) {
  h.AttachFour();
  EXPECT_TRUE(h.serving.serving);
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.RunToEnd();
  ExpectAnswer(r, 5, 8);
  EXPECT_EQ(client(r).finished->reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(client(r).summary->link, "shm");
  EXPECT_EQ(client(r).summary->seed, 7u);
  EXPECT_EQ(client(r).summary->migrations, 0u);
  EXPECT_EQ(client(r).summary->prefill_worker, "p1:1");
  EXPECT_EQ(client(r).summary->decode_worker, "d1:1");
  EXPECT_EQ(client(r).summary->timing.queue_us, 1000u);
  EXPECT_EQ(client(r).summary->timing.prefill_us, 2000u);
  EXPECT_EQ(client(r).summary->timing.decode_us, 40u);
}

TEST_F(RouterCoreTest, LegsCarryTheRequest) {
  h.AttachFour();
  CheckedRequest request = CoreHarness::Request(Prompt(5), 8);
  request.request_id = "mine";
  request.deadline = h.now + absl::Seconds(9);
  h.Arrive(request);
  const LegKey prefill = h.PrefillLeg();
  EXPECT_EQ(h.At(prefill).prefill_request.request_id(), "mine");
  EXPECT_EQ(h.At(prefill).prefill_request.attempt(), 0u);
  EXPECT_EQ(h.At(prefill).deadline, request.deadline);
  EXPECT_EQ(h.At(prefill).prefill_request.sampling().seed(), 7u);
  h.Ticket(prefill);
  const LegKey decode = h.DecodeLeg();
  EXPECT_EQ(h.At(decode).decode_request.ticket().handover_id(), prefill);
  EXPECT_EQ(h.At(decode).tokens(), Prompt(5));
  EXPECT_EQ(h.At(decode).deadline, request.deadline);
}

TEST_F(RouterCoreTest, ThePrefillLegSaysWhenTheFirstTokenIsDue) {
  h.AttachFour();
  CheckedRequest request = CoreHarness::Request(Prompt(5), 8);
  h.Arrive(request);
  LegKey leg = h.PrefillLeg();
  EXPECT_FALSE(h.At(leg).prefill_request.has_first_token_due_us());
  h.RunToEnd(leg);

  request.slo.ttft = absl::Milliseconds(300);
  h.Arrive(request);
  leg = h.PrefillLeg();
  EXPECT_EQ(h.At(leg).prefill_request.first_token_due_us(), 300'000u);
  h.Advance(absl::Milliseconds(100));
  h.End(leg, absl::UnavailableError("lost"));
  leg = h.PrefillLeg();
  EXPECT_EQ(h.At(leg).prefill_request.first_token_due_us(), 200'000u);
  h.Advance(absl::Milliseconds(900));
  h.End(leg, absl::UnavailableError("lost"));
  h.Advance(absl::Milliseconds(500));
  leg = h.PrefillLeg();
  EXPECT_TRUE(h.At(leg).prefill_request.has_first_token_due_us());
  EXPECT_EQ(h.At(leg).prefill_request.first_token_due_us(), 0u);
  h.Ticket(leg);
  h.First(leg);
  h.Reserve(h.DecodeLeg());
  // A first token that was shown is not due any more.
  h.End(h.DecodeLeg(), absl::UnavailableError("lost"));
  h.Advance(absl::Milliseconds(500));
  EXPECT_FALSE(h.At(h.PrefillLeg()).prefill_request.has_first_token_due_us());
}

TEST_F(RouterCoreTest, TokenOneWaitsForAReservationAndThenComesAtOnce) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  EXPECT_TRUE(client(r).tokens.empty());
  h.Advance(absl::Milliseconds(100));
  h.Reserve(h.DecodeLeg());
  EXPECT_EQ(client(r).tokens, Continuation(Prompt(5), 1));
  h.Tokens(h.DecodeLeg(), 0, 8);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 8);
  EXPECT_EQ(client(r).summary->timing.ttft_us, 100000u);
}

TEST_F(RouterCoreTest, AReservationBeforeTokenOneHoldsNothingBack) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.Ticket(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  h.First(h.PrefillLeg());
  EXPECT_EQ(client(r).tokens.size(), 1u);
}

TEST_F(RouterCoreTest, AFirstTokenThatEndsTheAnswerNeedsNoDecode) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 1);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg(), v1::FINISH_REASON_LENGTH);
  ExpectAnswer(r, 5, 1);
  EXPECT_EQ(client(r).summary->decode_worker, "");
  EXPECT_EQ(client(r).summary->link, "");
}

TEST_F(RouterCoreTest, PrefillMayEndBeforeDecodeShowsAnything) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 4);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  h.End(h.PrefillLeg(), absl::OkStatus());
  h.Tokens(h.DecodeLeg(), 0, 4);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 4);
}

TEST_F(RouterCoreTest, DecodeMayBeFasterThanThePrefillWorkersWord) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 4);
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.Reserve(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);
  h.First(prefill);
  h.Tokens(h.DecodeLeg(), 2, 2);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 4);
}

// The decode worker may end the answer before the prefill worker's first token has come.
TEST_F(RouterCoreTest, CachedTokensAreKnownFromTheTicketOn) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(40), 4);
  h.Ticket(h.PrefillLeg(), 32);
  h.FinishDecode(h.DecodeLeg());
  ExpectAnswer(r, 40, 4);
  EXPECT_EQ(client(r).summary->usage.cached_tokens, 32u);
}

TEST_F(RouterCoreTest, UnsetMaxTokensGoesToTheEndOfWhatAPairHolds) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(96), 0);
  EXPECT_EQ(h.At(h.PrefillLeg()).max_tokens(), 4000);
  h.Tell(ClientCancelled{r});
  ExpectFailed(r, Code::kCancelled, "");
}

TEST_F(RouterCoreTest, DuplicatesAreDropped) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.Tokens(h.DecodeLeg(), 1, 4);
  h.Tokens(h.DecodeLeg(), 0, 6);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 6);
}

// The first token of an answer, which the client has, and another one for its position.
TEST_F(RouterCoreTest, OfTwoTokensForOnePositionOthersComputeTheRightOne) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  const TokenId shown = client(r).tokens.at(0);
  const std::string prefill = h.At(h.PrefillLeg()).worker.address;
  const std::string decode = h.At(h.DecodeLeg()).worker.address;
  h.Token(h.DecodeLeg(), (shown + 1) % kHarnessVocab, 5);
  EXPECT_FALSE(client(r).status);
  EXPECT_EQ(h.DecodeLeg(), 0u);
  ASSERT_NE(h.PrefillLeg(), 0u);
  EXPECT_EQ(h.At(h.PrefillLeg()).tokens().size(), 5u) << "the disputed token is computed again";
  EXPECT_NE(h.At(h.PrefillLeg()).worker.address, prefill);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  EXPECT_NE(h.At(h.DecodeLeg()).worker.address, decode);
  // The dispute is settled, so this attempt's successor begins after all tokens.
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.End(h.DecodeLeg(), absl::UnavailableError("gone"));
  h.Advance(absl::Seconds(1));
  h.ReportAll();
  ASSERT_NE(h.PrefillLeg(), 0u);
  EXPECT_EQ(h.At(h.PrefillLeg()).tokens().size(), 8u);
  h.RunToEnd();
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
  EXPECT_EQ(client(r).tokens, Continuation(Prompt(5), 6));
  EXPECT_EQ(h.core.counters().data_loss, 1u);
  EXPECT_EQ(h.core.counters().diverged, 0u);
}

TEST_F(RouterCoreTest, AnAnswerOfWhichOthersComputeAnotherTokenIsDataLoss) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  for (int i = 0; i < 2; ++i) {
    h.Ticket(h.PrefillLeg());
    if (i == 0) h.First(h.PrefillLeg());
    h.Reserve(h.DecodeLeg());
    const TokenId shown = client(r).tokens.at(0);
    h.Token(h.DecodeLeg(), (shown + 1) % kHarnessVocab, 5);
  }
  ExpectFailed(r, Code::kDataLoss, "position 5");
  EXPECT_EQ(h.core.counters().diverged, 1u);
  EXPECT_TRUE(AtRest());
}

// All tokens are there, and one of them is disputed.
TEST_F(RouterCoreTest, ACompleteAnswerWithADisputedTokenIsNotGiven) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 3);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  const TokenId shown = client(r).tokens.at(2);
  h.Token(h.DecodeLeg(), (shown + 1) % kHarnessVocab, 7);
  EXPECT_FALSE(client(r).status);
  ASSERT_NE(h.PrefillLeg(), 0u);
  EXPECT_EQ(h.At(h.PrefillLeg()).tokens().size(), 7u);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg(), v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
  EXPECT_EQ(client(r).tokens, Continuation(Prompt(5), 3));
}

TEST_F(RouterCoreTest, ADecodeWorkerBeginsWithTheFirstToken) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Reserve(h.DecodeLeg());
  // It counts one too many, so this is the first token.
  h.Token(h.DecodeLeg(), client(r).tokens.at(0), 6);
  EXPECT_EQ(h.core.counters().data_loss, 1u);
  h.RunToEnd();
  EXPECT_EQ(client(r).tokens, Continuation(Prompt(5), 6));
}

TEST_F(RouterCoreTest, AGapOrANonsenseTokenSendsTheRequestBack) {
  for (const auto& [id, position] :
       {std::pair<TokenId, size_t>{1, 9}, {kHarnessVocab, 6}, {-1, 6}, {1, 2}}) {
    CoreHarness fresh;
    fresh.AttachFour();
    const RequestKey r = fresh.Arrive(Prompt(5), 6);
    fresh.Ticket(fresh.PrefillLeg());
    fresh.First(fresh.PrefillLeg());
    fresh.Reserve(fresh.DecodeLeg());
    fresh.Token(fresh.DecodeLeg(), id, position);
    EXPECT_EQ(fresh.core.counters().data_loss, 1u);
    fresh.RunToEnd();
    EXPECT_EQ(fresh.clients.at(r).tokens, Continuation(Prompt(5), 6)) << position;
    EXPECT_EQ(fresh.clients.at(r).summary->migrations, 1u);
  }
}

}  // namespace
}  // namespace baton
