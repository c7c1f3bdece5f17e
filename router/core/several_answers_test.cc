#include "router/testing/router_core_fixture.h"

// Tests of requests for several answers.
namespace baton {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

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
    EXPECT_EQ(answer(r, index).summary->usage.completion_tokens, 8u);
    EXPECT_EQ(answer(r, index).summary->seed, 7u);
    // Only the answer that ends last, which has index 0 here, reports the total.
    EXPECT_EQ(answer(r, index).summary->total.has_value(), index == 0);
  }
  EXPECT_EQ(client(r).summary->total->prompt_tokens, 5u);
  EXPECT_EQ(client(r).summary->total->completion_tokens, 24u);
  EXPECT_TRUE(AtRest());
}

TEST_F(SeveralAnswersTest, EachMigratesOnItsOwn) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Several(2));
  for (const uint32_t index : {0u, 1u}) {
    const LegKey prefill = h.PrefillLegOfAnswer(index);
    h.Ticket(prefill);
    h.First(prefill);
    h.Reserve(h.DecodeLegOf(prefill));
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
    EXPECT_EQ(answer(r, index).summary->migrations, index);
  }
  EXPECT_TRUE(client(r).status->ok());
  EXPECT_TRUE(AtRest());
}

TEST_F(SeveralAnswersTest, OneThatFailsEndsAll) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Several(4));
  h.RunToEnd(h.PrefillLegOfAnswer(2));
  for (int i = 0; i < 3; ++i) {
    h.End(h.PrefillLegOfAnswer(1), absl::InvalidArgumentError("no"));
    if (client(r).status) break;
    h.Advance(absl::Seconds(1));
    h.ReportAll();
  }
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
              HasSubstr("queue of 4 requests holds 3 and this request wants 2 answers"));
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

// No worker can hold the prompt with an answer. All answers of the request fail together, while the
// router is walking through the queue.
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
  for (auto& [key, load] : h.loads) load.set_waiting(1);  // Answer 1 waits in its worker's queue.
  const RequestKey r = h.Arrive(Several(2));
  h.RunToEnd(h.PrefillLegOfAnswer(0));
  for (int second = 0; second < 120; ++second) {
    h.ReportAll();
    h.Advance(absl::Seconds(1));
  }
  EXPECT_FALSE(client(r).aborted);
  h.RunToEnd(h.PrefillLegOfAnswer(1));
  EXPECT_TRUE(client(r).status->ok()) << *client(r).status;
  // The client does not leave after its final status. So the router aborts the client's RPC: once,
  // although the request has two answers.
  h.leave = false;
  const RequestKey slow = h.Arrive(Several(2));
  h.RunToEnd(h.PrefillLegOfAnswer(1));
  h.RunToEnd(h.PrefillLegOfAnswer(0));
  EXPECT_TRUE(client(slow).status);
  h.Advance(absl::Minutes(1));
  EXPECT_TRUE(client(slow).aborted);
  EXPECT_TRUE(AtRest());
}

}  // namespace
}  // namespace baton
