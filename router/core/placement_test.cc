#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"
#include "router/testing/router_core_fixture.h"

// Tests of membership, and of which worker gets which request.
namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

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
  // The same processes attach again over new streams, and the router recognises them.
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  h.d1 = h.Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1});
  h.RunToEnd();
  ExpectAnswer(r, 5, 6);
  EXPECT_EQ(client(r).summary->migrations, 0u);
}

TEST_F(RouterCoreTest, TheNewestEpochAtAnAddressWins) {
  h.AttachFour();
  const RequestKey r = h.Arrive(Prompt(5), 6);
  ASSERT_EQ(h.At(h.PrefillLeg()).worker.epoch, 1u);
  h.Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 101);
  EXPECT_TRUE(h.closed.count(h.p1));
  // A new process has replaced the prefill worker. The router gives up its RPC to the old process,
  // although no event has said that the RPC ended: the request now runs on the worker with epoch 2.
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
    EXPECT_TRUE(h.peers.at(key).none_fits());
  }
  decode_with([](auto&) {}, {2});
  EXPECT_FALSE(h.serving.serving);
  decode_with([](auto&) {}, {1});
  EXPECT_TRUE(h.serving.serving);
  EXPECT_EQ(h.serving.context_tokens, 1024) << "its pool holds no more";
}

// The router sets `none_fits` for a worker that can work with no worker of the other role. The
// worker then is not ready, so a rolling deployment does not go on to replace the workers that
// still serve.
TEST(PlacementTest, AWorkerThatFitsNoneOfTheOtherRoleIsTold) {
  for (const ServingMode mode : {ServingMode::kDisaggregated, ServingMode::kColocated}) {
    RouterCoreOptions options = CoreHarness::Options();
    options.mode = mode;
    CoreHarness h(options);
    const AttachKey p = h.Attach(v1::WORKER_ROLE_PREFILL, "p:1", 1);
    EXPECT_FALSE(h.peers.at(p).none_fits()) << "there is no other";
    const AttachKey d = h.Attach(CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, "d:1", 2, "other"));
    const bool pairs = mode == ServingMode::kDisaggregated;
    EXPECT_EQ(h.peers.at(p).none_fits(), pairs);
    EXPECT_EQ(h.peers.at(d).none_fits(), pairs);
    const AttachKey other = h.Attach(v1::WORKER_ROLE_DECODE, "d:2", 3);
    EXPECT_FALSE(h.peers.at(p).none_fits());
    EXPECT_EQ(h.peers.at(p).peers_size(), 1);
    EXPECT_FALSE(h.peers.at(other).none_fits());
    EXPECT_EQ(h.peers.at(d).none_fits(), pairs);
    h.Tell(WorkerDetached{p});
    h.Advance(absl::ZeroDuration());
    EXPECT_FALSE(h.peers.at(d).none_fits()) << "no other is left";
  }
}

TEST_F(RouterCoreTest, WhoWaitsForAPairInVainIsToldInWhatWorkersDiffer) {
  v1::Registration worker;
  worker.set_role(v1::WORKER_ROLE_PREFILL);
  worker.set_address("p:1");
  worker.set_epoch(1);
  worker.set_protocol_version(kProtocolVersion);
  worker.set_model_fingerprint("f");
  worker.set_layout_fingerprint("l16");
  worker.set_numerics_id("cpu-f32");
  worker.set_total_blocks(64);
  worker.set_block_tokens(16);
  worker.set_context_tokens(4096);
  const AttachKey prefill = h.Attach(worker);
  worker.set_role(v1::WORKER_ROLE_DECODE);
  worker.set_address("d:1");
  worker.set_epoch(2);
  worker.set_layout_fingerprint("l64");
  worker.set_numerics_id("cuda-bf16");
  const AttachKey decode = h.Attach(worker, {1});
  const RequestKey r = h.Arrive(Prompt(5), 6);
  for (int i = 0; i < 31; ++i) {
    h.Advance(absl::Seconds(1));
    h.Report(prefill);
    h.Report(decode);
  }
  ExpectFailed(r, Code::kUnavailable,
               "prefill worker p:1 and decode worker d:1 have layout l16 and l64, numerics cpu-f32 "
               "and cuda-bf16; give both the same --backend");
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
  h.Arrive(Prompt(100), 6);  // Goes to p1.
  h.Arrive(Prompt(10), 6);   // Goes to p2, which has no prompt yet.
  h.Arrive(Prompt(10), 6);   // Goes to p2: it has 10 tokens to compute, and p1 has 100.
  int at_p2 = 0;
  for (const auto& [key, leg] : h.legs) at_p2 += leg.worker.address == "p2:1";
  EXPECT_EQ(at_p2, 2);
}

// All workers of each role have different loads, and the least loaded policy would choose p2 and d2
// each time.
TEST(PlacementTest, RoundRobinTakesWorkersInTurnWhateverTheirLoad) {
  RouterCoreOptions options = CoreHarness::Options();
  options.policy = RoutingPolicyKind::kRoundRobin;
  CoreHarness h(options);
  h.AttachFour();
  h.loads.at(h.p1).set_waiting_tokens(100000);
  h.loads.at(h.d1).set_running(60);
  h.ReportAll();
  std::vector<std::string> prefill, decode;
  for (int i = 0; i < 4; ++i) {
    h.Arrive(Prompt(5), 6);
    const LegKey leg = h.legs.rbegin()->first;
    prefill.push_back(h.At(leg).worker.address);
    h.Ticket(leg);
    decode.push_back(h.At(h.DecodeLegOf(leg)).worker.address);
  }
  EXPECT_THAT(prefill, ElementsAre("p1:1", "p2:1", "p1:1", "p2:1"));
  EXPECT_THAT(decode, ElementsAre("d1:1", "d2:1", "d1:1", "d2:1"));
}

TEST(PlacementTest, RoundRobinPassesOverWorkersThatFailedOrAreFull) {
  RouterCoreOptions options = CoreHarness::Options();
  options.policy = RoutingPolicyKind::kRoundRobin;
  CoreHarness h(options);
  h.AttachFour();
  h.loads.at(h.d1).set_free_blocks(0);
  h.Report(h.d1);
  h.Arrive(Prompt(5), 6);
  ASSERT_EQ(h.At(h.PrefillLeg()).worker.address, "p1:1");
  h.Ticket(h.PrefillLeg());
  EXPECT_EQ(h.At(h.DecodeLeg()).worker.address, "d2:1") << "d1 has no room";
  h.Arrive(Prompt(5), 6);
  const LegKey second = h.legs.rbegin()->first;
  ASSERT_EQ(h.At(second).worker.address, "p2:1");
  h.Arrive(Prompt(5), 6);
  const LegKey third = h.legs.rbegin()->first;
  ASSERT_EQ(h.At(third).worker.address, "p1:1");
  h.End(second, absl::UnavailableError("killed"));
  EXPECT_EQ(h.At(h.legs.rbegin()->first).worker.address, "p1:1") << "it is p2's turn, which failed";
}

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

// Tests with a large and a small prefill worker, which take two prompts each at a time. Only the
// large one takes long prompts.
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
  // Returns the open Prefill RPCs to the worker at `address` whose prompts have `tokens` tokens.
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
  // A hundred short requests overtake the two long ones and go to the small worker.
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
  // Two of these requests fill the small worker. The other three wait in the queue, because the
  // large worker is full too.
  for (int i = 0; i < 5; ++i) w.Arrive(Prompt(5), 8);
  ASSERT_EQ(LegsAt("small:1", 5).size(), 2u);
  ASSERT_EQ(w.core.queued(), 4u);
  w.Tell(ClientCancelled{first[0]});
  EXPECT_EQ(LegsAt("large:1", 600).size(), 1u) << "a younger request took its place";
  EXPECT_EQ(LegsAt("large:1", 5).size(), 0u);
  EXPECT_FALSE(w.clients.at(picky).status);
  // The next free place of the large worker goes to the oldest request in the queue.
  w.Tell(ClientCancelled{first[1]});
  EXPECT_EQ(LegsAt("large:1", 5).size(), 1u);
}

TEST_F(PickyRequestTest, AnAnswerBegunWithOtherWeightsHoldsUpNobodyElse) {
  const RequestKey begun = w.Arrive(Prompt(500), 8);
  const LegKey prefill = w.PrefillLeg();
  w.Ticket(prefill);
  w.First(prefill);
  w.Reserve(w.DecodeLeg());
  ASSERT_EQ(w.clients.at(begun).tokens.size(), 1u);
  // The large worker is the only one with its weights, and it fills up. More workers with other
  // weights attach, and after ten seconds the router serves the other weights.
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
  other.set_address("d4:1");
  other.set_epoch(14);
  w.Attach(other, {3});
  for (int i = 0; i < 22; ++i) {
    w.Advance(absl::Milliseconds(500));
    for (const auto& [key, load] : w.loads) {
      if (key != w.p2) w.Report(key);
    }
  }
  ASSERT_EQ(w.serving.identity.fingerprint, "other");
  w.End(prefill, absl::UnavailableError("killed"));
  w.Advance(absl::Milliseconds(15));
  EXPECT_EQ(w.core.queued(), 1u) << "its place is at the large worker";
  w.Arrive(Prompt(6), 8);
  EXPECT_EQ(LegsAt("other:1", 6).size(), 1u);
  EXPECT_EQ(w.core.queued(), 1u);
  w.Tell(ClientCancelled{2});  // Request 2 is one of the two that fill the large worker.
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
  EXPECT_EQ(client(r).summary->timing.queue_us, 20001000u);
}

TEST_F(RouterCoreTest, TooLongForThePairsIsToldWithTheSum) {
  const RequestKey waited = h.Arrive(Prompt(4090), 100);
  h.AttachFour();
  ExpectFailed(waited, Code::kInvalidArgument, "make 4190");
  const RequestKey r = h.Arrive(Prompt(4090), 7);
  ExpectFailed(r, Code::kInvalidArgument, "4096");
}

// The limit that ListModels reports is the limit that requests really have, also if workers have
// block pools of different sizes.
class UnequalPoolsTest : public testing::TestWithParam<ServingMode> {
 protected:
  UnequalPoolsTest() : h_(Options()) {}
  static RouterCoreOptions Options() {
    RouterCoreOptions options = CoreHarness::Options();
    options.mode = GetParam();
    return options;
  }
  AttachKey Attach(v1::WorkerRole role, WorkerEpoch epoch, uint32_t blocks) {
    v1::Registration worker = CoreHarness::WorkerOf(role, absl::StrCat("w", epoch, ":1"), epoch);
    worker.set_total_blocks(blocks);
    return h_.Attach(worker, {1, 2});
  }
  // Expects that ListModels reports `tokens`, that a request of `tokens` tokens is accepted, and
  // that a request of one more token is refused with a message that has this number.
  void ExpectLimit(int tokens) {
    EXPECT_EQ(h_.serving.context_tokens, tokens);
    const RequestKey fits = h_.Arrive(Prompt(tokens - 5), 5);
    EXPECT_FALSE(h_.clients.at(fits).status) << *h_.clients.at(fits).status;
    h_.Tell(ClientCancelled{fits});
    const RequestKey beyond = h_.Arrive(Prompt(tokens - 5), 6);
    ASSERT_TRUE(h_.clients.at(beyond).status);
    EXPECT_EQ(h_.clients.at(beyond).status->code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(h_.clients.at(beyond).status->message()),
                HasSubstr(absl::StrCat("the workers take ", tokens, " tokens")));
  }
  void Wait(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h_.Advance(absl::Seconds(1));
      h_.ReportAll();
    }
  }
  CoreHarness h_;
};

TEST_P(UnequalPoolsTest, TheListedLimitIsTheOneThatRequestsMeet) {
  const bool pairs = GetParam() == ServingMode::kDisaggregated;
  Attach(v1::WORKER_ROLE_PREFILL, 1, 40);
  Attach(v1::WORKER_ROLE_DECODE, 11, 100);
  ExpectLimit(pairs ? 640 : 1600);
  // The limit on prompt and answer together, which ListModels reports, grows as soon as larger
  // workers attach.
  const AttachKey prefill = Attach(v1::WORKER_ROLE_PREFILL, 2, 150);
  const AttachKey decode = Attach(v1::WORKER_ROLE_DECODE, 12, 200);
  ExpectLimit(pairs ? 2400 : 3200);
  // The larger workers have gone. Requests still wait for such workers for pair_wait (30 s), and
  // the limit stays for three quarters of this time. A request that has no limit of its own then
  // takes what is there.
  h_.Tell(WorkerDetached{prefill});
  h_.Tell(WorkerDetached{decode});
  h_.closed.insert({prefill, absl::OkStatus()});
  h_.closed.insert({decode, absl::OkStatus()});
  const RequestKey open = h_.Arrive(Prompt(100), 0);
  Wait(22);
  ExpectLimit(pairs ? 2400 : 3200);
  EXPECT_TRUE(h_.legs.empty());
  Wait(2);
  EXPECT_EQ(h_.legs.size(), 1u);
  EXPECT_FALSE(h_.clients.at(open).status);
  ExpectLimit(pairs ? 640 : 1600);
}

TEST_P(UnequalPoolsTest, WithoutAnyWorkerTheLastLimitStays) {
  Attach(v1::WORKER_ROLE_PREFILL, 1, 200);
  const AttachKey decode = Attach(v1::WORKER_ROLE_DECODE, 11, 100);
  h_.Tell(WorkerDetached{decode});
  h_.closed.insert({decode, absl::OkStatus()});
  Wait(100);
  ExpectLimit(1600);
  Attach(v1::WORKER_ROLE_DECODE, 12, 60);
  ExpectLimit(1600);
  Wait(31);
  ExpectLimit(960);
}

INSTANTIATE_TEST_SUITE_P(Modes, UnequalPoolsTest,
                         testing::Values(ServingMode::kDisaggregated, ServingMode::kColocated,
                                         ServingMode::kAuto));

}  // namespace
}  // namespace baton
