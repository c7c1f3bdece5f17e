#include "router/router_core.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/core_harness.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

std::vector<TokenId> Prompt(int size) {
  std::vector<TokenId> prompt(static_cast<size_t>(size));
  std::iota(prompt.begin(), prompt.end(), 1);
  return prompt;
}

class RouterCoreTest : public ::testing::Test {
 protected:
  ClientSide& client(RequestKey key) { return h.clients.at(key); }
  void ExpectAnswer(RequestKey key, int prompt, int tokens) {
    ASSERT_TRUE(client(key).status) << "not finished";
    EXPECT_TRUE(client(key).status->ok()) << *client(key).status;
    EXPECT_EQ(client(key).accepted, 1);
    EXPECT_EQ(client(key).tokens, Continuation(Prompt(prompt), tokens));
    for (size_t i = 0; i < client(key).positions.size(); ++i) {
      ASSERT_EQ(client(key).positions[i], prompt + i);
    }
    ASSERT_TRUE(client(key).finished);
    ASSERT_TRUE(client(key).summary);
    EXPECT_EQ(client(key).summary->usage().completion_tokens(), static_cast<uint32_t>(tokens));
    EXPECT_TRUE(AtRest());
  }
  void ExpectFailed(RequestKey key, Code code, const std::string& words) {
    ASSERT_TRUE(client(key).status) << "not finished";
    EXPECT_EQ(client(key).status->code(), code) << *client(key).status;
    EXPECT_THAT(std::string(client(key).status->message()), HasSubstr(words));
    EXPECT_FALSE(client(key).finished);
  }
  bool AtRest() { return h.core.requests() == 0 && h.core.legs() == 0 && h.core.queued() == 0; }

  CoreHarness h;
};

// --- Logprobs of the prompt ------------------------------------------------------------------

class PromptLogprobsTest : public RouterCoreTest {
 protected:
  PromptLogprobsTest() { h.AttachFour(); }
  RequestKey Arrive() {
    CheckedRequest request = CoreHarness::Request(Prompt(5), 8);
    request.sampling.prompt_logprobs = 0;
    return h.Arrive(request);
  }
  void ExpectScored(RequestKey key) {
    ASSERT_EQ(client(key).scores.size(), 5u);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(client(key).scores[i].position(), static_cast<uint32_t>(i));
      EXPECT_EQ(client(key).scores[i].token_id(), Prompt(5)[i]);
      EXPECT_EQ(client(key).scores[i].logprob(), -0.5f * static_cast<float>(i));
    }
  }
};

TEST_F(PromptLogprobsTest, ComeAsTheyAreComputedAndBeforeTheAnswer) {
  const RequestKey r = Arrive();
  const LegKey prefill = h.PrefillLeg();
  EXPECT_TRUE(h.At(prefill).prefill_request.sampling().has_prompt_logprobs());
  h.Ticket(prefill);
  h.Scores(prefill, 0, 3);
  EXPECT_EQ(client(r).scores.size(), 3u);
  h.Scores(prefill, 3, 2);
  h.First(prefill);
  EXPECT_FALSE(h.At(h.DecodeLeg()).decode_request.sampling().has_prompt_logprobs());
  h.FinishDecode(h.DecodeLeg());
  ExpectScored(r);
  ExpectAnswer(r, 5, 8);
}

// Decode may be done before the prefill worker's word comes through.
TEST_F(PromptLogprobsTest, TheAnswerWaitsForThem) {
  const RequestKey r = Arrive();
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.Scores(prefill, 0, 2);
  const LegKey decode = h.DecodeLeg();
  h.Promise(decode);
  h.Tokens(decode, 0, 8);
  EXPECT_TRUE(h.At(decode).paused);
  h.Finish(decode);
  EXPECT_TRUE(client(r).tokens.empty());
  EXPECT_FALSE(client(r).status);
  h.Scores(prefill, 2, 3);
  ExpectScored(r);
  ExpectAnswer(r, 5, 8);
}

TEST_F(PromptLogprobsTest, GoOnWhereTheyWereWhenThePrefillWorkerDies) {
  const RequestKey r = Arrive();
  const LegKey first = h.PrefillLeg();
  h.Ticket(first);
  h.Scores(first, 0, 3);
  h.Promise(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);  // nobody has seen them
  h.End(first, absl::UnavailableError("gone"));
  const LegKey second = h.PrefillLeg();
  ASSERT_NE(second, 0u);
  EXPECT_TRUE(h.At(second).prefill_request.sampling().has_prompt_logprobs());
  EXPECT_EQ(h.At(second).tokens().size(), 5u);
  h.Ticket(second);
  h.Scores(second, 0, 5);
  ExpectScored(r);
  h.First(second);
  // Once they are all there, a later try computes none.
  h.Promise(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.End(h.DecodeLeg(), absl::UnavailableError("gone"));
  h.Advance(absl::Milliseconds(10));
  EXPECT_FALSE(h.At(h.PrefillLeg()).prefill_request.sampling().has_prompt_logprobs());
  h.RunToEnd();
  ExpectScored(r);
  ExpectAnswer(r, 5, 8);
  EXPECT_EQ(client(r).summary->migrations(), 2u);
}

TEST_F(PromptLogprobsTest, AStreamThatEndsWithoutThemIsBroken) {
  const RequestKey r = Arrive();
  const LegKey first = h.PrefillLeg();
  h.Ticket(first);
  h.Scores(first, 0, 3);
  h.Promise(h.DecodeLeg());
  h.End(first, absl::OkStatus());
  ASSERT_NE(h.PrefillLeg(), 0u);
  EXPECT_EQ(h.core.counters().migrations, 1u);
  h.Tell(ClientCancelled{r});
  EXPECT_TRUE(AtRest());
}

TEST_F(PromptLogprobsTest, WhatIsNotThePromptIsDataLoss) {
  const auto spoiled = [&](const std::function<void(v1::PrefillEvent&)>& spoil) {
    const RequestKey r = Arrive();
    const LegKey leg = h.PrefillLeg();
    h.Ticket(leg);
    v1::PrefillEvent event;
    for (int i = 0; i < 2; ++i) {
      v1::Token* token = event.mutable_prompt_tokens()->add_tokens();
      *token = CoreHarness::MakeToken(Prompt(5)[i], i);
      if (i > 0) token->set_logprob(-1);
    }
    spoil(event);
    const uint64_t before = h.core.counters().data_loss;
    h.Tell(PrefillSaid{leg, event});
    EXPECT_EQ(h.core.counters().data_loss, before + 1);
    h.Tell(ClientCancelled{r});
    EXPECT_TRUE(AtRest());
  };
  spoiled([](auto& e) { e.mutable_prompt_tokens()->mutable_tokens(1)->set_token_id(9); });
  spoiled([](auto& e) { e.mutable_prompt_tokens()->mutable_tokens(1)->set_position(2); });
  spoiled([](auto& e) { e.mutable_prompt_tokens()->mutable_tokens(0)->set_logprob(0); });
  spoiled([](auto& e) { e.mutable_prompt_tokens()->mutable_tokens(1)->clear_logprob(); });
  spoiled([](auto& e) {
    for (int i = 2; i < 6; ++i) {
      *e.mutable_prompt_tokens()->add_tokens() = CoreHarness::MakeToken(i + 1, i);
      e.mutable_prompt_tokens()->mutable_tokens(i)->set_logprob(-1);
    }
  });
  spoiled([](auto& e) {
    *e.mutable_first_token()->mutable_token() = CoreHarness::MakeToken(NextToken(Prompt(5)), 5);
  });
  // Nobody asked.
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.Ticket(h.PrefillLeg());
  const uint64_t before = h.core.counters().data_loss;
  h.Scores(h.PrefillLeg(), 0, 1);
  EXPECT_EQ(h.core.counters().data_loss, before + 1);
  h.Tell(ClientCancelled{r});
}

TEST_F(PromptLogprobsTest, ASlowClientGetsThemFirst) {
  CheckedRequest request = CoreHarness::Request(Prompt(1500), 8);
  request.sampling.prompt_logprobs = 0;
  const RequestKey r = h.Arrive(request);
  client(r).reads = false;
  client(r).owes = true;
  h.Ticket(h.PrefillLeg());
  h.Scores(h.PrefillLeg(), 0, 1500);
  h.First(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);
  client(r).reads = true;
  h.Take(r);
  EXPECT_EQ(client(r).scores.size(), 1500u);
  EXPECT_EQ(client(r).tokens.size(), 2u);
  // An end at once brings the rest, too.
  h.Tokens(h.DecodeLeg(), 2, 6);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 1500, 8);
}

TEST_F(PromptLogprobsTest, OfSeveralAnswersTheFirstBringsThem) {
  CheckedRequest request = CoreHarness::Request(Prompt(5), 8);
  request.sampling.prompt_logprobs = 0;
  request.answers = 2;
  const RequestKey r = h.Arrive(request);
  const LegKey zero = h.PrefillLegOfAnswer(0), one = h.PrefillLegOfAnswer(1);
  EXPECT_TRUE(h.At(zero).prefill_request.sampling().has_prompt_logprobs());
  EXPECT_FALSE(h.At(one).prefill_request.sampling().has_prompt_logprobs());
  h.Ticket(zero);
  h.Scores(zero, 0, 5);
  h.First(zero);
  h.RunToEnd(one);
  h.FinishDecode(h.DecodeLegOf(zero));
  ExpectScored(r);
  EXPECT_TRUE(client(r).status->ok());
  EXPECT_TRUE(AtRest());
}

// --- Several answers -----------------------------------------------------------------------

class SeveralAnswersTest : public RouterCoreTest {
 protected:
  CheckedRequest Several(int answers, int prompt = 5, int max_tokens = 8) {
    CheckedRequest request = CoreHarness::Request(Prompt(prompt), max_tokens);
    request.answers = answers;
    return request;
  }
  ClientSide& answer(RequestKey key, uint32_t index) {
    return index == 0 ? client(key) : client(key).others[index];
  }
};

TEST_F(SeveralAnswersTest, ComeAsOneStreamEachOnItsOwn) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Several(3));
  ASSERT_EQ(h.core.requests(), 3u);
  for (const uint32_t index : {1u, 2u, 0u}) {
    EXPECT_FALSE(client(r).status);
    h.RunToEnd(h.PrefillLegOfAnswer(index));
  }
  ASSERT_TRUE(client(r).status);
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
  EXPECT_EQ(client(r).accepted, 1);
  for (uint32_t index = 0; index < 3; ++index) {
    EXPECT_EQ(answer(r, index).tokens, Continuation(Prompt(5), 8, index));
    ASSERT_TRUE(answer(r, index).summary);
    EXPECT_EQ(answer(r, index).summary->usage().completion_tokens(), 8u);
    EXPECT_EQ(answer(r, index).summary->seed(), 7u);
    // The last to end tells the sum.
    EXPECT_EQ(answer(r, index).summary->has_total(), index == 0);
  }
  EXPECT_EQ(client(r).summary->total().prompt_tokens(), 5u);
  EXPECT_EQ(client(r).summary->total().completion_tokens(), 24u);
  EXPECT_TRUE(AtRest());
}

TEST_F(SeveralAnswersTest, EachMigratesOnItsOwn) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Several(2));
  for (const uint32_t index : {0u, 1u}) {
    const LegKey prefill = h.PrefillLegOfAnswer(index);
    h.Ticket(prefill);
    h.First(prefill);
    h.Promise(h.DecodeLegOf(prefill));
    h.Tokens(h.DecodeLegOf(prefill), 0, 3);
  }
  const LegKey kept = h.DecodeLegOf(h.PrefillLegOfAnswer(0));
  h.End(h.DecodeLegOf(h.PrefillLegOfAnswer(1)), absl::UnavailableError("gone"));
  h.Advance(absl::Milliseconds(1));
  const LegKey again = h.PrefillLegOfAnswer(1);
  ASSERT_EQ(h.At(again).tokens().size(), 5u + 3u);
  EXPECT_EQ(h.At(again).prompt(), 5u);
  h.Tokens(kept, 3, 5);
  h.Finish(kept);
  EXPECT_FALSE(client(r).status);
  h.RunToEnd(again);
  for (uint32_t index = 0; index < 2; ++index) {
    EXPECT_EQ(answer(r, index).tokens, Continuation(Prompt(5), 8, index));
    EXPECT_EQ(answer(r, index).summary->migrations(), index);
  }
  EXPECT_TRUE(client(r).status->ok());
  EXPECT_TRUE(AtRest());
}

TEST_F(SeveralAnswersTest, OneThatFailsEndsAll) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Several(4));
  h.RunToEnd(h.PrefillLegOfAnswer(2));
  h.End(h.PrefillLegOfAnswer(1), absl::InvalidArgumentError("no"));
  ExpectFailed(r, Code::kInvalidArgument, "no");
  EXPECT_TRUE(answer(r, 2).summary);
  EXPECT_TRUE(AtRest());
}

TEST_F(SeveralAnswersTest, CancellingAndTheDeadlineEndAll) {
  h.AttachFour();
  const RequestKey cancelled = h.Arrive(Several(3));
  h.Ticket(h.PrefillLegOfAnswer(1));
  h.Tell(ClientCancelled{cancelled});
  ExpectFailed(cancelled, Code::kCancelled, "cancelled");
  EXPECT_TRUE(AtRest());
  CheckedRequest late = Several(3);
  late.deadline = h.now + absl::Seconds(1);
  const RequestKey expired = h.Arrive(late);
  h.RunToEnd(h.PrefillLegOfAnswer(0));
  h.Advance(absl::Seconds(1));
  ASSERT_TRUE(client(expired).status);
  EXPECT_EQ(client(expired).status->code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(AtRest());
}

TEST_F(SeveralAnswersTest, TheQueueHasRoomForAllOrForNone) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queued = 4;
  CoreHarness small(options);
  const RequestKey three = small.Arrive(Several(3));
  const RequestKey two = small.Arrive(Several(2));
  EXPECT_EQ(small.clients.at(two).status->code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(small.clients.at(two).status->message()),
              HasSubstr("queue of 4 requests holds 3 and this one wants 2 answers"));
  EXPECT_EQ(small.clients.at(two).accepted, 0);
  EXPECT_EQ(small.core.queued(), 3u);
  const RequestKey one = small.Arrive(Several(1));
  EXPECT_FALSE(small.clients.at(one).status);
  EXPECT_EQ(small.core.counters().shed, 1u);
  small.Tell(StopAll{});
  for (const RequestKey key : {three, one}) {
    EXPECT_EQ(small.clients.at(key).status->code(), Code::kUnavailable);
  }
  EXPECT_EQ(small.core.requests(), 0u);
}

// All fail at once, in the middle of a walk through the queue.
TEST_F(SeveralAnswersTest, ThatDoNotFitLeaveTheQueueTogether) {
  const RequestKey too_long = h.Arrive(Several(3, 4000, 97));
  const RequestKey fits = h.Arrive(Prompt(5), 8);
  h.AttachFour();
  ExpectFailed(too_long, Code::kInvalidArgument, "make 4097");
  h.RunToEnd();
  ExpectAnswer(fits, 5, 8);
}

TEST_F(SeveralAnswersTest, OneThatEndedLongAgoDoesNotCutTheOthers) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Several(2));
  h.RunToEnd(h.PrefillLegOfAnswer(0));
  for (int second = 0; second < 120; ++second) {
    h.ReportAll();
    h.Advance(absl::Seconds(1));
  }
  EXPECT_FALSE(client(r).aborted);
  h.RunToEnd(h.PrefillLegOfAnswer(1));
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
  // And one who does not take the status is cut once, as ever.
  h.leave = false;
  const RequestKey slow = h.Arrive(Several(2));
  h.RunToEnd(h.PrefillLegOfAnswer(1));
  h.RunToEnd(h.PrefillLegOfAnswer(0));
  EXPECT_TRUE(client(slow).status);
  h.Advance(absl::Minutes(1));
  EXPECT_TRUE(client(slow).aborted);
  EXPECT_TRUE(AtRest());
}

// --- The way of one request -------------------------------------------------------------------

TEST_F(RouterCoreTest, AnAnswerComesThroughBothLegs) {
  h.AttachFour();
  EXPECT_TRUE(h.serving.serving);
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.RunToEnd();
  ExpectAnswer(r, 5, 8);
  EXPECT_EQ(client(r).finished->reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(client(r).summary->link(), "shm");
  EXPECT_EQ(client(r).summary->seed(), 7u);
  EXPECT_EQ(client(r).summary->migrations(), 0u);
  EXPECT_EQ(client(r).summary->prefill_worker(), "p1:1");
  EXPECT_EQ(client(r).summary->decode_worker(), "d1:1");
  EXPECT_EQ(client(r).summary->timing().queue_us(), 1000u);
  EXPECT_EQ(client(r).summary->timing().prefill_us(), 2000u);
  EXPECT_EQ(client(r).summary->timing().decode_us(), 40u);
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

TEST_F(RouterCoreTest, TokenOneWaitsForAPromiseAndThenComesAtOnce) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  EXPECT_TRUE(client(r).tokens.empty());
  h.Advance(absl::Milliseconds(100));
  h.Promise(h.DecodeLeg());
  EXPECT_EQ(client(r).tokens, Continuation(Prompt(5), 1));
  h.Tokens(h.DecodeLeg(), 0, 8);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 8);
  EXPECT_EQ(client(r).summary->timing().ttft_us(), 100000u);
}

TEST_F(RouterCoreTest, APromiseBeforeTokenOneHoldsNothingBack) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 8);
  h.Ticket(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
  h.First(h.PrefillLeg());
  EXPECT_EQ(client(r).tokens.size(), 1u);
}

TEST_F(RouterCoreTest, AFirstTokenThatEndsTheAnswerNeedsNoDecode) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 1);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg(), v1::FINISH_REASON_LENGTH);
  ExpectAnswer(r, 5, 1);
  EXPECT_EQ(client(r).summary->decode_worker(), "");
  EXPECT_EQ(client(r).summary->link(), "");
}

TEST_F(RouterCoreTest, PrefillMayEndBeforeDecodeShowsAnything) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 4);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
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
  h.Promise(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);
  h.First(prefill);
  h.Tokens(h.DecodeLeg(), 2, 2);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 4);
}

TEST_F(RouterCoreTest, UnsetMaxTokensGoesToTheEndOfWhatAPairHolds) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(96), 0);
  EXPECT_EQ(h.At(h.PrefillLeg()).max_tokens(), 4000);
  h.Tell(ClientCancelled{r});
  ExpectFailed(r, Code::kCancelled, "");
}

// --- Order, duplicates, divergence ------------------------------------------------------------

TEST_F(RouterCoreTest, DuplicatesAreDropped) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.Tokens(h.DecodeLeg(), 1, 4);
  h.Tokens(h.DecodeLeg(), 0, 6);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, TwoTokensForOnePositionAreDataLoss) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
  const TokenId shown = client(r).tokens.at(0);
  h.Token(h.DecodeLeg(), (shown + 1) % kHarnessVocab, 5);
  ExpectFailed(r, Code::kDataLoss, "position 5");
  EXPECT_EQ(h.core.counters().diverged, 1u);
  EXPECT_TRUE(AtRest());
}

TEST_F(RouterCoreTest, AGapOrANonsenseTokenSendsTheRequestBack) {
  for (const auto& [id, position] :
       {std::pair<TokenId, size_t>{1, 9}, {kHarnessVocab, 6}, {-1, 6}, {1, 2}}) {
    CoreHarness fresh;
    fresh.AttachFour();
    const RequestKey r = fresh.Arrive(Prompt(5), 6);
    fresh.Ticket(fresh.PrefillLeg());
    fresh.First(fresh.PrefillLeg());
    fresh.Promise(fresh.DecodeLeg());
    fresh.Token(fresh.DecodeLeg(), id, position);
    EXPECT_EQ(fresh.core.counters().data_loss, 1u);
    fresh.RunToEnd();
    EXPECT_EQ(fresh.clients.at(r).tokens, Continuation(Prompt(5), 6)) << position;
    EXPECT_EQ(fresh.clients.at(r).summary->migrations(), 1u);
  }
}

// --- The failure table ------------------------------------------------------------------------

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
  EXPECT_EQ(client(r).summary->migrations(), 1u);
}

TEST_F(RouterCoreTest, PrefillDiesAfterTokenOneAndNothingIsShownTwice) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
  EXPECT_EQ(client(r).tokens.size(), 1u);
  h.End(h.PrefillLeg(), absl::UnavailableError("broken"));
  // The next one reads the token that was shown, too.
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
  EXPECT_EQ(client(r).summary->migrations(), 0u);
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
  EXPECT_EQ(client(r).summary->migrations(), 0u);
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
  h.Promise(h.DecodeLeg());
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
  EXPECT_TRUE(AtRest());
}

TEST_F(RouterCoreTest, AFullPrefillWorkerIsNoMigration) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  const std::string full = h.At(h.PrefillLeg()).worker.address;
  h.End(h.PrefillLeg(), absl::ResourceExhaustedError("queue of 64 is full"));
  EXPECT_NE(h.At(h.PrefillLeg()).worker.address, full);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations(), 0u);
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
    if (shown == 0) w.Promise(w.DecodeLeg());
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
    EXPECT_EQ(w.clients.at(r).summary->migrations(), 1u);
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

TEST_F(RouterCoreTest, InvalidArgumentOfAWorkerGoesToTheClient) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.End(h.PrefillLeg(), absl::InvalidArgumentError("never fits: 99 of 10"));
  ExpectFailed(r, Code::kInvalidArgument, "never fits: 99 of 10");
  const RequestKey s = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.End(h.DecodeLeg(), absl::InvalidArgumentError("never fits there"));
  ExpectFailed(s, Code::kInvalidArgument, "never fits there");
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
  // One pair: it is not avoided.
  w.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  w.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  const RequestKey r = w.Arrive(Prompt(5), 9);
  for (const int shown : {1, 4}) {
    w.Ticket(w.PrefillLeg());
    w.First(w.PrefillLeg());
    w.Promise(w.DecodeLeg());
    w.Tokens(w.DecodeLeg(), 0, shown);
    w.Outgrow(w.DecodeLeg());
    EXPECT_EQ(w.DecodeLeg(), 0u);
    // At once, with everything that was shown.
    ASSERT_NE(w.PrefillLeg(), 0u);
    EXPECT_EQ(w.At(w.PrefillLeg()).prompt(), 5u);
  }
  EXPECT_EQ(w.At(w.PrefillLeg()).tokens().size(), 10u);
  w.RunToEnd();
  const ClientSide& client = w.clients.at(r);
  EXPECT_TRUE(client.status->ok()) << *client.status;
  EXPECT_EQ(client.tokens, Continuation(Prompt(5), 9));
  EXPECT_EQ(client.summary->migrations(), 0u);
  EXPECT_EQ(w.core.counters().migrations, 0u);
  EXPECT_EQ(w.core.counters().outgrown, 2u);
}

TEST_F(RouterCoreTest, OutgrownWithoutATokenIsAFailure) {
  h.AttachFour();
  h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
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
  EXPECT_EQ(client(r).finished->reason(), v1::FINISH_REASON_LENGTH);

  CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
  request.sampling.stop_tokens = {Continuation(Prompt(5), 3)[2]};
  const RequestKey s = h.Arrive(request);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.End(h.DecodeLeg(), absl::UnavailableError("killed before its last word"));
  ExpectAnswer(s, 5, 3);
  EXPECT_EQ(client(s).finished->reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(client(s).finished->stop_token_id(), request.sampling.stop_tokens[0]);
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

TEST_F(RouterCoreTest, ASilentLegOfAWorkerThatReportsIsLeftAlone) {
  h.AttachFour();
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
  EXPECT_EQ(client(r).summary->migrations(), 0u);
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

TEST_F(RouterCoreTest, ARestartDoesNotMixTwoModels) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Promise(h.DecodeLeg());
  ASSERT_EQ(client(r).tokens.size(), 1u);
  // Only workers with other weights are left, and they are a pair.
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
  EXPECT_TRUE(h.serving.serving);
  for (int i = 0; i < 31; ++i) {
    EXPECT_EQ(h.PrefillLeg(), 0u);
    h.Advance(absl::Seconds(1));
    h.Report(p3);
    h.Report(d3);
  }
  ExpectFailed(r, Code::kUnavailable, "begun with");
  // A request that has shown nothing yet is not bound to them.
  const RequestKey s = h.Arrive(Prompt(5), 6);
  h.RunToEnd();
  ExpectAnswer(s, 5, 6);
}

// --- Membership -------------------------------------------------------------------------------

TEST_F(RouterCoreTest, LosingTheAttachStreamEndsNoRunningRequestAndBringsNoNewOne) {
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h.d1 = h.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Tell(WorkerDetached{h.p1});
  h.Tell(WorkerDetached{h.d1});
  EXPECT_FALSE(h.serving.serving);
  const RequestKey waits = h.Arrive(Prompt(5), 6);
  EXPECT_EQ(h.core.queued(), 1u);
  h.Tell(ClientCancelled{waits});
  // The same processes come back over new streams and are known again.
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h.d1 = h.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations(), 0u);
}

TEST_F(RouterCoreTest, TheNewestEpochAtAnAddressWins) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  ASSERT_EQ(h.At(h.PrefillLeg()).worker.epoch, 1u);
  h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 101);
  EXPECT_TRUE(h.closed.count(h.p1));
  // Its leg is as good as dead though nobody has said so.
  EXPECT_EQ(h.At(h.PrefillLeg()).worker.epoch, 2u);
  EXPECT_EQ(h.dropped.size(), 1u);
  for (const v1::Peer& peer : h.peers.at(h.d1).peers()) EXPECT_NE(peer.epoch(), 1u);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, OnlyWorkersOfEqualKindAndWithAProvenLinkArePaired) {
  v1::Registration prefill;
  prefill.set_role(v1::WORKER_ROLE_PREFILL);
  prefill.set_address("p:1");
  prefill.set_epoch(1);
  prefill.set_protocol_version(kProtocolVersion);
  prefill.set_model_fingerprint("f");
  prefill.set_layout_fingerprint("l");
  prefill.set_numerics_id("n");
  prefill.set_total_blocks(64);
  prefill.set_block_tokens(16);
  prefill.set_context_tokens(4096);
  h.Attach(prefill);
  int n = 0;
  const auto decode_with = [&](const std::function<void(v1::Registration&)>& change,
                               std::vector<WorkerEpoch> links) {
    v1::Registration decode = prefill;
    decode.set_role(v1::WORKER_ROLE_DECODE);
    decode.set_address(absl::StrCat("d", ++n, ":1"));
    decode.set_epoch(10 + n);
    change(decode);
    return h.Attach(decode, links);
  };
  const AttachKey other_model = decode_with([](auto& d) { d.set_model_fingerprint("g"); }, {1});
  const AttachKey other_layout = decode_with([](auto& d) { d.set_layout_fingerprint("g"); }, {1});
  const AttachKey other_numerics = decode_with([](auto& d) { d.set_numerics_id("g"); }, {1});
  for (const AttachKey key : {other_model, other_layout, other_numerics}) {
    EXPECT_EQ(h.peers.at(key).peers_size(), 0);
  }
  decode_with([](auto&) {}, {2});
  EXPECT_FALSE(h.serving.serving);
  decode_with([](auto&) {}, {1});
  EXPECT_TRUE(h.serving.serving);
  EXPECT_EQ(h.serving.context_tokens, 1024) << "its pool holds no more";
}

TEST_F(RouterCoreTest, WorkersThatThisRouterCannotServeAreToldWhy) {
  const AttachKey role = h.Attach(v1::WORKER_ROLE_UNSPECIFIED, "p:1", 1);
  EXPECT_EQ(h.closed.at(role).code(), Code::kFailedPrecondition);
  v1::Registration r;
  r.set_role(v1::WORKER_ROLE_PREFILL);
  r.set_address("p:1");
  r.set_epoch(1);
  r.set_protocol_version(kProtocolVersion + 1);
  const AttachKey protocol = h.Attach(r);
  EXPECT_THAT(std::string(h.closed.at(protocol).message()),
              HasSubstr(absl::StrCat("protocol ", kProtocolVersion + 1)));
  r.set_protocol_version(kProtocolVersion);
  r.set_model("other");
  const AttachKey model = h.Attach(r);
  EXPECT_THAT(std::string(h.closed.at(model).message()), HasSubstr("'other'"));
  r.set_model("m");
  const AttachKey empty = h.Attach(r);
  EXPECT_EQ(h.closed.at(empty).code(), Code::kInvalidArgument);
}

TEST_F(RouterCoreTest, AStaleReportBringsNoNewWork) {
  h.AttachFour();
  h.Advance(absl::Milliseconds(2900));
  for (const AttachKey key : {h.p2, h.d1, h.d2}) h.Report(key);
  h.Advance(absl::Milliseconds(200));
  for (int i = 0; i < 3; ++i) h.Arrive(Prompt(5), 6);
  for (const auto& [key, leg] : h.legs) EXPECT_EQ(leg.worker.address, "p2:1");
  h.Advance(absl::Seconds(3));
  EXPECT_FALSE(h.serving.serving);
}

TEST_F(RouterCoreTest, ADrainingWorkerGetsNothingNewAndFinishesWhatItHas) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  ASSERT_EQ(h.At(h.PrefillLeg()).worker.address, "p1:1");
  h.loads.at(h.p1).set_draining(true);
  h.Report(h.p1);
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  for (int i = 0; i < 3; ++i) h.Arrive(Prompt(5), 6);
  for (const auto& [key, leg] : h.legs) EXPECT_EQ(leg.worker.address, "p2:1");
}

TEST_F(RouterCoreTest, TheLeastLoadedWorkerIsTaken) {
  h.AttachFour();
  h.Arrive(Prompt(100), 6);  // p1
  h.Arrive(Prompt(10), 6);   // p2: none yet
  h.Arrive(Prompt(10), 6);   // p2: 10 against 100
  int at_p2 = 0;
  for (const auto& [key, leg] : h.legs) at_p2 += leg.worker.address == "p2:1";
  EXPECT_EQ(at_p2, 2);
}

// --- Admission --------------------------------------------------------------------------------

TEST_F(RouterCoreTest, TheQueueIsBoundedAndSaysSo) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_queued = 2;
  CoreHarness w(options);
  w.Arrive(Prompt(5), 6);
  w.Arrive(Prompt(5), 6);
  const RequestKey third = w.Arrive(Prompt(5), 6);
  EXPECT_EQ(w.clients.at(third).status->code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(w.clients.at(third).status->message()), HasSubstr("queue of 2"));
  EXPECT_EQ(w.clients.at(third).accepted, 0);
  EXPECT_EQ(w.core.counters().shed, 1u);
}

TEST_F(RouterCoreTest, PromptsAtOneWorkerAreBounded) {
  RouterCoreOptions options = CoreHarness::Options();
  options.max_prompts_per_worker = 3;
  CoreHarness w(options);
  w.AttachFour();
  std::vector<RequestKey> all;
  for (int i = 0; i < 8; ++i) all.push_back(w.Arrive(Prompt(5), 6));
  EXPECT_EQ(w.legs.size(), 6u);
  EXPECT_EQ(w.core.queued(), 2u);
  w.Tell(ClientCancelled{all[0]});
  EXPECT_EQ(w.core.queued(), 1u);
}

// One large and one small prefill worker, two places each: only the large one takes long prompts.
class PickyRequestTest : public RouterCoreTest {
 protected:
  PickyRequestTest() : w(Options()) {
    w.p1 = w.Attach(v1::WORKER_ROLE_PREFILL, "large:1", 1);
    v1::Registration small;
    small.set_role(v1::WORKER_ROLE_PREFILL);
    small.set_address("small:1");
    small.set_epoch(2);
    small.set_protocol_version(kProtocolVersion);
    small.set_model_fingerprint("f");
    small.set_layout_fingerprint("l");
    small.set_numerics_id("n");
    small.set_total_blocks(8);
    small.set_block_tokens(16);
    small.set_context_tokens(128);
    w.p2 = w.Attach(small);
    w.d1 = w.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1, 2});
  }
  static RouterCoreOptions Options() {
    RouterCoreOptions options = CoreHarness::Options();
    options.max_prompts_per_worker = 2;
    return options;
  }
  // Open prefill legs of prompts of so many tokens at a worker.
  std::vector<LegKey> LegsAt(const std::string& address, size_t tokens) const {
    std::vector<LegKey> found;
    for (const auto& [key, leg] : w.legs) {
      if (leg.worker.address == address && leg.tokens().size() == tokens) found.push_back(key);
    }
    return found;
  }
  CoreHarness w;
};

TEST_F(PickyRequestTest, WhoWaitsForOneBusyWorkerHoldsUpNobodyElse) {
  for (int i = 0; i < 2; ++i) w.Arrive(Prompt(500), 8);
  ASSERT_EQ(LegsAt("large:1", 500).size(), 2u);
  const RequestKey picky = w.Arrive(Prompt(600), 8);
  const RequestKey pickier = w.Arrive(Prompt(700), 8);
  EXPECT_EQ(w.core.queued(), 2u);
  // A hundred short ones go past them, to the small worker.
  for (int i = 0; i < 100; ++i) {
    const RequestKey quick = w.Arrive(Prompt(5), 8);
    EXPECT_EQ(LegsAt("small:1", 5).size(), 1u) << i;
    w.Tell(ClientCancelled{quick});
  }
  EXPECT_EQ(w.core.queued(), 2u);
  EXPECT_FALSE(w.clients.at(picky).status);
  EXPECT_FALSE(w.clients.at(pickier).status);
}

TEST_F(PickyRequestTest, APlaceGoesToTheOldestThatCanUseIt) {
  std::vector<RequestKey> first;
  for (int i = 0; i < 2; ++i) first.push_back(w.Arrive(Prompt(500), 8));
  const RequestKey picky = w.Arrive(Prompt(600), 8);
  // Both workers are full now, and younger ones that any worker could take wait behind.
  for (int i = 0; i < 5; ++i) w.Arrive(Prompt(5), 8);
  ASSERT_EQ(LegsAt("small:1", 5).size(), 2u);
  ASSERT_EQ(w.core.queued(), 4u);
  w.Tell(ClientCancelled{first[0]});
  EXPECT_EQ(LegsAt("large:1", 600).size(), 1u) << "a younger request took its place";
  EXPECT_EQ(LegsAt("large:1", 5).size(), 0u);
  EXPECT_FALSE(w.clients.at(picky).status);
  // The next place of the large worker is for whoever is oldest then.
  w.Tell(ClientCancelled{first[1]});
  EXPECT_EQ(LegsAt("large:1", 5).size(), 1u);
}

TEST_F(PickyRequestTest, AnAnswerBegunWithOtherWeightsHoldsUpNobodyElse) {
  const RequestKey begun = w.Arrive(Prompt(500), 8);
  const LegKey prefill = w.PrefillLeg();
  w.Ticket(prefill);
  w.First(prefill);
  w.Promise(w.DecodeLeg());
  ASSERT_EQ(w.clients.at(begun).tokens.size(), 1u);
  // Other weights attach; then the large worker, the only one with the old ones, fills up.
  v1::Registration other;
  other.set_role(v1::WORKER_ROLE_PREFILL);
  other.set_address("other:1");
  other.set_epoch(3);
  other.set_protocol_version(kProtocolVersion);
  other.set_model_fingerprint("other");
  other.set_layout_fingerprint("l");
  other.set_numerics_id("n");
  other.set_total_blocks(1024);
  other.set_block_tokens(16);
  other.set_context_tokens(4096);
  w.Tell(WorkerDetached{w.p2});
  for (int i = 0; i < 2; ++i) w.Arrive(Prompt(5), 8);
  ASSERT_EQ(LegsAt("large:1", 5).size(), 2u);
  w.Attach(other);
  other.set_role(v1::WORKER_ROLE_DECODE);
  other.set_address("d3:1");
  other.set_epoch(13);
  w.Attach(other, {3});
  w.End(prefill, absl::UnavailableError("killed"));
  w.Advance(absl::Milliseconds(15));
  EXPECT_EQ(w.core.queued(), 1u) << "its place is at the large worker";
  w.Arrive(Prompt(6), 8);
  EXPECT_EQ(LegsAt("other:1", 6).size(), 1u);
  EXPECT_EQ(w.core.queued(), 1u);
  w.Tell(ClientCancelled{2});  // one of the two that fill the large worker
  EXPECT_EQ(LegsAt("large:1", 501).size(), 1u) << "it goes on where it can";
}

TEST_F(RouterCoreTest, WithoutAPairRequestsWaitAndThenSayWhatIsMissing) {
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Advance(absl::Seconds(29));
  EXPECT_FALSE(client(r).status);
  h.Advance(absl::Seconds(2));
  ExpectFailed(r, Code::kUnavailable, "no worker is attached");
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  const RequestKey s = h.Arrive(Prompt(5), 6);
  for (int i = 0; i < 31; ++i) {
    h.Advance(absl::Seconds(1));
    h.Report(h.p1);
  }
  ExpectFailed(s, Code::kUnavailable, "no decode worker is attached");
}

TEST_F(RouterCoreTest, RequestsThatWaitedAreServedWhenAPairComes) {
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Advance(absl::Seconds(20));
  h.AttachFour();
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->timing().queue_us(), 20001000u);
}

TEST_F(RouterCoreTest, TooLongForThePairsIsToldWithTheSum) {
  const RequestKey waited = h.Arrive(Prompt(4090), 100);
  h.AttachFour();
  ExpectFailed(waited, Code::kInvalidArgument, "make 4190");
  const RequestKey r = h.Arrive(Prompt(4090), 7);
  ExpectFailed(r, Code::kInvalidArgument, "4096");
}

// --- Clients ----------------------------------------------------------------------------------

TEST_F(RouterCoreTest, CancellingCancelsBothLegsInEveryPhase) {
  for (int phase = 0; phase < 6; ++phase) {
    CoreHarness w;
    w.end_cancelled = false;
    if (phase > 0) w.AttachFour();
    const RequestKey r = w.Arrive(Prompt(5), 6);
    if (phase > 1) w.Ticket(w.PrefillLeg());
    if (phase > 2) w.First(w.PrefillLeg());
    if (phase > 3) w.Promise(w.DecodeLeg());
    if (phase > 4) w.Tokens(w.DecodeLeg(), 0, 3);
    w.Tell(ClientCancelled{r});
    ASSERT_TRUE(w.clients.at(r).status) << phase;
    EXPECT_EQ(w.clients.at(r).status->code(), Code::kCancelled);
    EXPECT_EQ(w.core.queued(), 0u);
    for (const auto& [key, leg] : w.legs) EXPECT_TRUE(leg.cancelled) << phase;
    while (!w.legs.empty()) w.End(w.legs.begin()->first, absl::CancelledError("cancelled"));
    EXPECT_EQ(w.core.legs(), 0u);
    EXPECT_EQ(w.core.requests(), 0u);
  }
}

TEST_F(RouterCoreTest, TheDeadlineEndsARequestInEveryPhase) {
  for (int phase = 0; phase < 6; ++phase) {
    CoreHarness w;
    if (phase > 0) w.AttachFour();
    CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
    request.deadline = w.now + absl::Seconds(2);
    const RequestKey r = w.Arrive(request);
    if (phase > 1) w.Ticket(w.PrefillLeg());
    if (phase > 2) w.First(w.PrefillLeg());
    if (phase > 3) w.Promise(w.DecodeLeg());
    if (phase > 4) w.Tokens(w.DecodeLeg(), 0, 3);
    w.Advance(absl::Milliseconds(1999));
    EXPECT_FALSE(w.clients.at(r).status);
    w.Advance(absl::Milliseconds(1));
    ASSERT_TRUE(w.clients.at(r).status) << phase;
    EXPECT_EQ(w.clients.at(r).status->code(), Code::kDeadlineExceeded);
    EXPECT_EQ(w.core.legs() + w.core.requests() + w.core.queued(), 0u);
  }
}

TEST_F(RouterCoreTest, ASlowClientPausesItsSequenceAndGetsEverythingLater) {
  RouterCoreOptions options = CoreHarness::Options();
  options.client_buffer_tokens = 4;
  CoreHarness w(options);
  w.AttachFour();
  const RequestKey r = w.Arrive(Prompt(5), 20);
  w.clients.at(r).reads = false;
  w.Ticket(w.PrefillLeg());
  w.First(w.PrefillLeg());
  w.Promise(w.DecodeLeg());
  const LegKey decode = w.DecodeLeg();
  w.Tokens(decode, 0, 4);
  EXPECT_FALSE(w.At(decode).paused);
  w.Tokens(decode, 4, 1);
  EXPECT_TRUE(w.At(decode).paused);
  w.Advance(absl::Seconds(20));
  w.ReportAll();
  w.Take(r);
  EXPECT_FALSE(w.At(decode).paused);
  w.clients.at(r).reads = true;
  w.Take(r);
  w.Tokens(decode, 5, 15);
  w.Finish(decode);
  EXPECT_EQ(w.clients.at(r).tokens, Continuation(Prompt(5), 20));
}

TEST_F(RouterCoreTest, AClientThatReadsNothingForTooLongIsRefusedAndThenCut) {
  RouterCoreOptions options = CoreHarness::Options();
  options.client_buffer_tokens = 4;
  options.slow_client_limit = absl::Seconds(3);
  CoreHarness w(options);
  w.AttachFour();
  const RequestKey r = w.Arrive(Prompt(5), 20);
  w.clients.at(r).reads = false;
  w.Ticket(w.PrefillLeg());
  w.First(w.PrefillLeg());
  w.Promise(w.DecodeLeg());
  w.Tokens(w.DecodeLeg(), 0, 10);
  w.Advance(absl::Milliseconds(2900));
  EXPECT_FALSE(w.clients.at(r).status);
  w.Advance(absl::Milliseconds(200));
  ASSERT_TRUE(w.clients.at(r).status);
  EXPECT_EQ(w.clients.at(r).status->code(), Code::kResourceExhausted);
  EXPECT_EQ(w.core.legs(), 0u);
  EXPECT_FALSE(w.clients.at(r).aborted);
  w.Advance(absl::Seconds(3));
  EXPECT_TRUE(w.clients.at(r).aborted);
  EXPECT_EQ(w.core.requests(), 0u);
}

TEST_F(RouterCoreTest, AStopStringEndsTheAnswerAndIsNoPartOfIt) {
  h.AttachFour();
  const std::vector<TokenId> tokens = Continuation(Prompt(5), 8);
  // Across the border of tokens 3 and 4; the text of a token is its number and a blank.
  CheckedRequest request = CoreHarness::Request(Prompt(5), 8);
  const std::string third = absl::StrCat(tokens[2], " "), fourth = absl::StrCat(tokens[3], " ");
  request.stop = {third.substr(1) + fourth.substr(0, 1)};
  const RequestKey r = h.Arrive(request);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Tokens(h.DecodeLeg(), 0, 8);
  ASSERT_TRUE(client(r).finished);
  EXPECT_EQ(client(r).finished->reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(client(r).finished->matched_stop(), request.stop[0]);
  EXPECT_EQ(client(r).text, absl::StrCat(tokens[0], " ", tokens[1], " ", third.substr(0, 1)));
  EXPECT_EQ(client(r).tokens.size(), 4u);
  EXPECT_TRUE(AtRest());
}

// --- Going away -------------------------------------------------------------------------------

TEST_F(RouterCoreTest, DrainingTakesNothingNewAndFinishesWhatRuns) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Tell(Drain{});
  EXPECT_FALSE(h.serving.serving);
  const RequestKey late = h.Arrive(Prompt(5), 6);
  ExpectFailed(late, Code::kUnavailable, "draining");
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
}

TEST_F(RouterCoreTest, StoppingEndsEverything) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  h.Ticket(h.PrefillLeg());
  h.Tell(StopAll{});
  ExpectFailed(r, Code::kUnavailable, "going away");
  EXPECT_TRUE(AtRest());
}

}  // namespace
}  // namespace baton
