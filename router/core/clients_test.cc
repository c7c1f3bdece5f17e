#include "absl/strings/str_cat.h"
#include "router/testing/router_core_fixture.h"

// Tests of clients that cancel or read slowly, of deadlines and stop strings, and of a router that
// stops.
namespace baton {
namespace {

using Code = absl::StatusCode;

TEST_F(RouterCoreTest, CancellingCancelsBothLegsInEveryPhase) {
  for (int phase = 0; phase < 6; ++phase) {
    CoreHarness w;
    w.end_cancelled = false;
    if (phase > 0) w.AttachFour();
    const RequestKey r = w.Arrive(Prompt(5), 6);
    if (phase > 1) w.Ticket(w.PrefillLeg());
    if (phase > 2) w.First(w.PrefillLeg());
    if (phase > 3) w.Reserve(w.DecodeLeg());
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
    if (phase > 3) w.Reserve(w.DecodeLeg());
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
  w.Reserve(w.DecodeLeg());
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
  w.Reserve(w.DecodeLeg());
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
  // The stop string spans the border between tokens 3 and 4. The text of a token is its number and
  // a blank.
  CheckedRequest request = CoreHarness::Request(Prompt(5), 8);
  const std::string third = absl::StrCat(tokens[2], " "), fourth = absl::StrCat(tokens[3], " ");
  request.stop = {third.substr(1) + fourth.substr(0, 1)};
  const RequestKey r = h.Arrive(request);
  h.Ticket(h.PrefillLeg());
  h.First(h.PrefillLeg());
  h.Tokens(h.DecodeLeg(), 0, 8);
  ASSERT_TRUE(client(r).finished);
  EXPECT_EQ(client(r).finished->reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(client(r).finished->matched_stop, request.stop[0]);
  EXPECT_EQ(client(r).text, absl::StrCat(tokens[0], " ", tokens[1], " ", third.substr(0, 1)));
  EXPECT_EQ(client(r).tokens.size(), 4u);
  EXPECT_TRUE(AtRest());
}

TEST_F(RouterCoreTest, AStopStringWithinTheFirstMinTokensDoesNotEndTheAnswer) {
  for (const int min_tokens : {0, 3}) {
    CoreHarness w;
    w.AttachFour();
    const std::vector<TokenId> answer = Continuation(Prompt(5), 6);
    CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
    request.sampling.min_tokens = min_tokens;
    request.stop = {absl::StrCat(answer[2], " ")};
    const RequestKey r = w.Arrive(request);
    w.Ticket(w.PrefillLeg());
    w.First(w.PrefillLeg());
    w.Reserve(w.DecodeLeg());
    w.Tokens(w.DecodeLeg(), 0, 6);
    EXPECT_EQ(w.clients.at(r).finished.has_value(), min_tokens == 0);
  }
}

TEST_F(RouterCoreTest, WithoutMaxTokensTheModelsOwnLimitEndsTheAnswer) {
  CoreHarness w;
  w.AttachFour();
  CheckedRequest request = CoreHarness::Request(Prompt(5), 0);
  request.default_max_tokens = 3;
  request.default_name = "max_new_tokens 3 of generation_config.json";
  const RequestKey r = w.Arrive(request);
  EXPECT_EQ(w.At(w.PrefillLeg()).prefill_request.sampling().max_tokens(), 3u);
  w.Ticket(w.PrefillLeg());
  w.First(w.PrefillLeg());
  w.Reserve(w.DecodeLeg());
  const LegKey decode = w.DecodeLeg();
  w.Tokens(decode, 0, 3);
  w.Finish(decode);
  ASSERT_TRUE(w.clients.at(r).finished);
  EXPECT_EQ(w.clients.at(r).finished->reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(w.clients.at(r).finished->limit, request.default_name);
  EXPECT_EQ(w.clients.at(r).tokens, Continuation(Prompt(5), 3));
}

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
  ExpectFailed(r, Code::kUnavailable, "shutting down");
  EXPECT_TRUE(AtRest());
}

}  // namespace
}  // namespace baton
