#include "router/testing/router_core_fixture.h"

// Tests of logprobs of the prompt.
namespace baton {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

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

// The decode worker may finish before the prefill worker's logprobs arrive.
TEST_F(PromptLogprobsTest, TheAnswerWaitsForThem) {
  const RequestKey r = Arrive();
  const LegKey prefill = h.PrefillLeg();
  h.Ticket(prefill);
  h.Scores(prefill, 0, 2);
  const LegKey decode = h.DecodeLeg();
  h.Reserve(decode);
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
  h.Reserve(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);  // The client has not been shown these tokens.
  h.End(first, absl::UnavailableError("gone"));
  const LegKey second = h.PrefillLeg();
  ASSERT_NE(second, 0u);
  EXPECT_TRUE(h.At(second).prefill_request.sampling().has_prompt_logprobs());
  EXPECT_EQ(h.At(second).tokens().size(), 5u);
  h.Ticket(second);
  h.Scores(second, 0, 5);
  ExpectScored(r);
  h.First(second);
  // The first two attempts have sent all logprobs of the prompt, so the third one asks for none.
  h.Reserve(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 3);
  h.End(h.DecodeLeg(), absl::UnavailableError("gone"));
  h.Advance(absl::Milliseconds(10));
  EXPECT_FALSE(h.At(h.PrefillLeg()).prefill_request.sampling().has_prompt_logprobs());
  h.RunToEnd();
  ExpectScored(r);
  ExpectAnswer(r, 5, 8);
  EXPECT_EQ(client(r).summary->migrations, 2u);
}

TEST_F(PromptLogprobsTest, AStreamThatEndsWithoutThemIsBroken) {
  const RequestKey r = Arrive();
  const LegKey first = h.PrefillLeg();
  h.Ticket(first);
  h.Scores(first, 0, 3);
  h.Reserve(h.DecodeLeg());
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
  // A worker must not send logprobs of the prompt to a request that did not ask for them.
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
  h.Reserve(h.DecodeLeg());
  h.Tokens(h.DecodeLeg(), 0, 2);
  client(r).reads = true;
  h.Take(r);
  EXPECT_EQ(client(r).scores.size(), 1500u);
  EXPECT_EQ(client(r).tokens.size(), 2u);
  // All tokens that the client has not got are sent as soon as the answer ends.
  h.Tokens(h.DecodeLeg(), 2, 6);
  h.Finish(h.DecodeLeg());
  ExpectAnswer(r, 1500, 8);
}

// Logprobs of the prompt count against the client's buffer like tokens of the answer.
TEST_F(PromptLogprobsTest, AClientThatReadsNoneForTooLongIsRefused) {
  for (const ServingMode mode : {ServingMode::kDisaggregated, ServingMode::kColocated}) {
    RouterCoreOptions options = CoreHarness::Options();
    options.client_buffer_tokens = 3;
    options.slow_client_limit = absl::Seconds(2);
    CoreHarness slow(options);
    slow.AttachFour();
    CheckedRequest request = CoreHarness::Request(Prompt(9), 8);
    request.sampling.prompt_logprobs = 0;
    request.mode = mode;
    const RequestKey key = slow.Arrive(request);
    ClientSide& client = slow.clients.at(key);
    slow.Take(key);
    client.reads = false;
    const LegKey leg = mode == ServingMode::kColocated ? slow.DecodeLeg() : slow.PrefillLeg();
    if (mode == ServingMode::kColocated) slow.Reserve(leg);
    slow.Scores(leg, 0, 2);  // These logprobs are on their way to the client.
    slow.Scores(leg, 2, 3);  // These logprobs wait in the router.
    if (mode == ServingMode::kColocated) {
      EXPECT_TRUE(slow.At(leg).paused);
      slow.Take(key);
      EXPECT_FALSE(slow.At(leg).paused);
    } else {
      slow.Take(key);
    }
    slow.Scores(leg, 5, 3);
    slow.Advance(absl::Seconds(1));
    slow.ReportAll();
    ASSERT_FALSE(client.status);
    slow.Advance(absl::Seconds(2));
    ASSERT_TRUE(client.status);
    EXPECT_EQ(client.status->code(), Code::kResourceExhausted);
    EXPECT_THAT(std::string(client.status->message()), HasSubstr("3 tokens waited"));
  }
}

// A client is slow if it reads nothing for too long, not if it reads steadily.
TEST_F(PromptLogprobsTest, AClientThatReadsSteadilyIsNotRefused) {
  RouterCoreOptions options = CoreHarness::Options();
  options.client_buffer_tokens = 100;
  options.slow_client_limit = absl::Seconds(2);
  CoreHarness slow(options);
  slow.AttachFour();
  CheckedRequest request = CoreHarness::Request(Prompt(3000), 2);
  request.sampling.prompt_logprobs = 0;
  const RequestKey key = slow.Arrive(request);
  ClientSide& client = slow.clients.at(key);
  slow.Take(key);
  client.reads = false;
  slow.Scores(slow.PrefillLeg(), 0, 3000);
  for (size_t seen = client.scores.size(); seen < 3000; seen = client.scores.size()) {
    for (int i = 0; i < 3; ++i) {
      slow.Advance(absl::Milliseconds(500));
      slow.ReportAll();
    }
    ASSERT_FALSE(client.status) << *client.status << " after " << seen;
    slow.Take(key);
    ASSERT_GT(client.scores.size(), seen);
  }
}

// When a short answer ends, all waiting logprobs of its prompt are sent. The client gets as much
// time to read them as it had while the answer was running.
TEST_F(PromptLogprobsTest, ALongPromptsLogprobsHaveTimeToLeave) {
  RouterCoreOptions options = CoreHarness::Options();
  options.client_buffer_tokens = 100;
  options.slow_client_limit = absl::Seconds(2);
  CoreHarness slow(options);
  slow.AttachFour();
  CheckedRequest request = CoreHarness::Request(Prompt(3000), 1);
  request.sampling.prompt_logprobs = 0;
  const RequestKey key = slow.Arrive(request);
  ClientSide& client = slow.clients.at(key);
  slow.Take(key);
  client.reads = false;
  const LegKey leg = slow.PrefillLeg();
  slow.Ticket(leg);
  slow.Scores(leg, 0, 3000);
  slow.First(leg, v1::FINISH_REASON_LENGTH);
  ASSERT_TRUE(client.status && client.status->ok());
  ASSERT_EQ(client.scores.size(), 3000u);
  slow.Advance(absl::Seconds(40));
  EXPECT_FALSE(client.aborted);
  slow.Advance(absl::Seconds(30));
  EXPECT_TRUE(client.aborted);
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

}  // namespace
}  // namespace baton
