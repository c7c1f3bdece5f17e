#include "absl/strings/str_join.h"
#include "router/core/worker_table.h"
#include "router/testing/router_core_fixture.h"

// Tests with workers of several identities behind one router: an answer never gets tokens of
// another model.
namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Code = absl::StatusCode;
using Mode = ServingMode;

constexpr Mode kModes[] = {ServingMode::kDisaggregated, ServingMode::kColocated,
                           ServingMode::kAuto};

RouterCoreOptions OptionsOf(Mode mode) {
  RouterCoreOptions options = CoreHarness::Options();
  options.mode = mode;
  options.auto_prompt_tokens = 4;
  return options;
}

// Routers of one mode with workers of models "f" and "g". The address of a worker names its role,
// its model and a number, for example "pf0:1" or "dg1:1".
class IdentityTest : public ::testing::TestWithParam<Mode> {
 protected:
  IdentityTest() : h(OptionsOf(GetParam())) {}
  explicit IdentityTest(RouterCoreOptions options) : h(std::move(options)) {}

  static bool pairs() { return GetParam() == ServingMode::kDisaggregated; }

  v1::Registration WorkerOf(v1::WorkerRole role, const std::string& model) {
    const bool prefill = role == v1::WORKER_ROLE_PREFILL;
    v1::Registration worker = CoreHarness::WorkerOf(
        role, absl::StrCat(prefill ? "p" : "d", model, workers_, ":1"), 100 + workers_);
    ++workers_;
    worker.set_model_fingerprint(model);
    return worker;
  }
  // One worker of each role, with a link between them.
  struct Pair {
    AttachKey prefill, decode;
  };
  Pair AttachPair(const std::string& model) {
    const v1::Registration prefill = WorkerOf(v1::WORKER_ROLE_PREFILL, model);
    Pair pair;
    pair.prefill = h.Attach(prefill);
    pair.decode = h.Attach(WorkerOf(v1::WORKER_ROLE_DECODE, model), {prefill.epoch()});
    return pair;
  }
  void Drain(const Pair& pair) {
    for (const AttachKey key : {pair.prefill, pair.decode}) {
      h.loads.at(key).set_draining(true);
      h.Report(key);
    }
  }
  // Moves the clock by `time` in steps. After each step all workers report their load.
  void Pass(absl::Duration time) {
    for (absl::Duration done; done < time; done += absl::Milliseconds(500)) {
      h.Advance(std::min(time - done, absl::Milliseconds(500)));
      h.ReportAll();
    }
  }
  // Returns one letter for each RPC to a worker (a leg) that is open and not cancelled: the model
  // of the leg's worker.
  std::string Models() const {
    std::string models;
    for (const auto& [key, leg] : h.legs) {
      if (!leg.cancelled) models += leg.worker.address[1];
    }
    return models;
  }
  RequestKey Arrive(int answers = 1, int prompt = 5) {
    CheckedRequest request = CoreHarness::Request(Prompt(prompt), 6);
    request.answers = answers;
    return h.Arrive(std::move(request));
  }
  // Lets the workers answer every open RPC completely. Returns one letter for each RPC: the model
  // of its worker.
  std::string Finish() {
    std::string models;
    std::map<LegKey, int> stage;
    for (int turn = 0; turn < 1000 && !h.legs.empty(); ++turn) {
      const LegKey key = h.legs.begin()->first;
      LegKey next = key;
      for (const auto& [leg, open] : h.legs) {
        if (stage[leg] < 2) next = leg;
      }
      if (stage[next] == 0) models += h.At(next).worker.address[1];
      const int step = stage[next]++;
      if (h.At(next).prefill) {
        if (step == 0) h.Ticket(next);
        if (step == 1) h.First(next);
      } else if (step == 0) {
        h.Reserve(next);
      } else if (step == 1) {
        h.Tokens(next, 0, h.At(next).max_tokens());
        h.Finish(next);
      }
    }
    EXPECT_TRUE(h.legs.empty());
    return models;
  }

  CoreHarness h;
  int workers_ = 0;
};

TEST_P(IdentityTest, AllAnswersOfARequestComeFromOneIdentity) {
  AttachPair("f");
  AttachPair("g");
  const RequestKey r = Arrive(4);
  // All four answers go to one model. By load alone, they would be spread over both pairs.
  EXPECT_EQ(Models(), "ffff");
  EXPECT_THAT(Finish(), Each('f'));
  ASSERT_TRUE(h.clients.at(r).status);
  EXPECT_TRUE(h.clients.at(r).status->ok()) << *h.clients.at(r).status;
}

TEST_P(IdentityTest, TheOneWithTheMostUsableWorkersIsServed) {
  AttachPair("f");
  EXPECT_EQ(h.serving.identity.ToString(), "f/n");
  AttachPair("g");
  Pass(absl::Seconds(30));
  EXPECT_EQ(h.serving.identity.fingerprint, "f") << "a tie keeps the present one";
  EXPECT_EQ(h.core.counters().identity_changes, 0u);
  AttachPair("g");
  Pass(absl::Milliseconds(9900));
  Arrive();
  EXPECT_EQ(Models(), "f");
  Pass(absl::Milliseconds(200));
  Arrive();
  Arrive();
  EXPECT_EQ(Models(), "fgg");
  EXPECT_EQ(h.serving.identity.ToString(), "g/n");
  EXPECT_EQ(h.serving.decode_workers, 2u);
  EXPECT_EQ(h.core.counters().identity_changes, 1u);
}

// While requests for four answers arrive, the workers are replaced one after the other. Each
// request is served by one model, none fails, and the router changes its identity once.
TEST_P(IdentityTest, ARolloutChangesTheIdentityOnce) {
  std::vector<Pair> old;
  for (int i = 0; i < 3; ++i) old.push_back(AttachPair("f"));
  std::string served;
  const auto ask = [&] {
    const RequestKey r = Arrive(4);
    const std::string models = Finish();
    ASSERT_TRUE(h.clients.at(r).status);
    EXPECT_TRUE(h.clients.at(r).status->ok()) << *h.clients.at(r).status;
    ASSERT_FALSE(models.empty());
    EXPECT_THAT(models, Each(models[0]));
    served += models[0];
  };
  for (int i = 0; i < 3; ++i) {
    AttachPair("g");
    ask();
    Pass(absl::Seconds(4));
    ask();
    Drain(old[i]);
    ask();
    for (const AttachKey key : {old[i].prefill, old[i].decode}) {
      h.Tell(WorkerDetached{key});
      h.closed[key] = absl::OkStatus();
    }
    Pass(absl::Seconds(8));
    ask();
  }
  // The old model serves all requests until two of the three old pairs drain. Only then does the
  // new model have more workers.
  EXPECT_THAT(served, testing::MatchesRegex("f+g+"));
  EXPECT_EQ(h.core.counters().identity_changes, 1u);
}

// A request for two answers begins with model f. Later the router serves model g, and one of the
// two answers loses its worker. That answer continues with model f, and a new request gets g.
TEST_P(IdentityTest, ARequestKeepsTheIdentityThatItBeganWith) {
  AttachPair("f");
  const RequestKey begun = Arrive(2);
  ASSERT_EQ(Models(), "ff");
  AttachPair("f");
  for (int i = 0; i < 3; ++i) AttachPair("g");
  Pass(absl::Seconds(11));
  ASSERT_EQ(h.serving.identity.fingerprint, "g");
  const LegKey first = h.legs.begin()->first;
  h.End(first, absl::UnavailableError("killed"));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Models(), "ff") << "it has shown nothing yet, and has begun all the same";
  const RequestKey fresh = Arrive();
  EXPECT_EQ(Models(), "ffg");
  Finish();
  EXPECT_TRUE(h.clients.at(begun).status->ok()) << *h.clients.at(begun).status;
  EXPECT_TRUE(h.clients.at(fresh).status->ok()) << *h.clients.at(fresh).status;
}

TEST_P(IdentityTest, ARequestWhoseIdentityHasLeftWaitsAndThenFailsWithTheReason) {
  const Pair pair = AttachPair("f");
  const RequestKey begun = Arrive(2);
  for (int i = 0; i < 2; ++i) AttachPair("g");
  for (const AttachKey key : {pair.prefill, pair.decode}) {
    h.Tell(WorkerDetached{key});
    h.closed[key] = absl::OkStatus();
  }
  while (!h.legs.empty()) h.End(h.legs.begin()->first, absl::UnavailableError("killed"));
  const RequestKey fresh = Arrive();
  Pass(absl::Seconds(5));
  EXPECT_EQ(Models(), "") << "the other has not led for ten seconds";
  Pass(absl::Seconds(6));
  EXPECT_EQ(Models(), "g") << "a request that had not begun goes on with what is served";
  EXPECT_FALSE(h.clients.at(begun).status);
  Pass(absl::Seconds(20));
  ASSERT_TRUE(h.clients.at(begun).status);
  EXPECT_EQ(h.clients.at(begun).status->code(), Code::kUnavailable);
  EXPECT_THAT(
      std::string(h.clients.at(begun).status->message()),
      AllOf(HasSubstr("worker is ready with identity f/n, which this answer was begun with"),
            HasSubstr("decode with g/n"), HasSubstr("killed")));
  EXPECT_FALSE(h.clients.at(fresh).status);
}

class FixedIdentityTest : public IdentityTest {
 protected:
  FixedIdentityTest() : IdentityTest(Options()) {}
  static RouterCoreOptions Options() {
    RouterCoreOptions options = OptionsOf(GetParam());
    options.serve_identity = {.fingerprint = "g", .numerics_id = "n"};
    return options;
  }
};

TEST_P(FixedIdentityTest, IsServedAndNoOther) {
  AttachPair("f");
  AttachPair("f");
  Pass(absl::Seconds(11));
  EXPECT_FALSE(h.serving.serving);
  EXPECT_THAT(h.serving.why,
              AllOf(HasSubstr("worker is ready with identity g/n, which this router serves"),
                    HasSubstr("--serve-identity is g/n")));
  const RequestKey r = Arrive(4);
  EXPECT_EQ(Models(), "");
  AttachPair("g");
  EXPECT_TRUE(h.serving.serving);
  EXPECT_EQ(Models(), "gggg");
  Finish();
  EXPECT_TRUE(h.clients.at(r).status->ok()) << *h.clients.at(r).status;
}

// If a request sets no max_tokens, the workers that it goes to limit the length of its answer.
TEST_P(IdentityTest, ARequestThatWaitedIsSizedForTheIdentityThatTakesIt) {
  AttachPair("f");
  const auto attach_small = [&] {
    v1::Registration prefill = WorkerOf(v1::WORKER_ROLE_PREFILL, "g");
    prefill.set_context_tokens(64);
    v1::Registration decode = WorkerOf(v1::WORKER_ROLE_DECODE, "g");
    decode.set_context_tokens(64);
    h.Attach(prefill);
    h.Attach(decode, {prefill.epoch()});
  };
  for (const auto& [key, load] : h.loads) h.closed[key] = absl::OkStatus();
  for (const auto& [key, load] : h.loads) h.Tell(WorkerDetached{key});
  const RequestKey open = h.Arrive(Prompt(10), 0);
  const RequestKey large = h.Arrive(Prompt(10), 100);
  attach_small();
  attach_small();
  EXPECT_EQ(h.serving.context_tokens, 4096);
  Pass(absl::Seconds(11));
  EXPECT_EQ(h.serving.context_tokens, 64);
  ASSERT_EQ(h.legs.size(), 1u);
  EXPECT_EQ(h.legs.begin()->second.max_tokens(), 54);
  EXPECT_FALSE(h.clients.at(open).status);
  ASSERT_TRUE(h.clients.at(large).status);
  EXPECT_EQ(h.clients.at(large).status->code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(h.clients.at(large).status->message()), HasSubstr("make 110"));
}

TEST_P(IdentityTest, WorkersOfAnotherIdentityAreNamed) {
  AttachPair("f");
  EXPECT_THAT(h.serving.unused, IsEmpty());
  AttachPair("g");
  EXPECT_EQ(h.serving.prefill_workers, 1u);
  EXPECT_EQ(h.serving.decode_workers, 1u);
  EXPECT_EQ(h.serving.why, "");
  ASSERT_EQ(h.serving.unused.size(), 2u) << absl::StrJoin(h.serving.unused, "; ");
  EXPECT_EQ(h.serving.unused[1], "decode worker dg3:1 is not used: it has identity g/n");
  for (int i = 0; i < 10; ++i) AttachPair("f");
  for (int i = 0; i < 10; ++i) AttachPair("g");
  ASSERT_EQ(h.serving.unused.size(), 9u);
  EXPECT_EQ(h.serving.unused[8], "14 more ready workers are not used");
}

// An identity is served once it has had the most workers for ten seconds. Time during which the
// router slept does not count.
TEST_P(IdentityTest, TimeThatTheRouterSleptIsNoLead) {
  AttachPair("f");
  for (int i = 0; i < 2; ++i) AttachPair("g");
  Pass(absl::Seconds(5));
  h.now += absl::Minutes(1);
  h.Tell(Overslept{absl::Minutes(1)});
  h.ReportAll();
  EXPECT_EQ(h.serving.identity.fingerprint, "f");
  Pass(absl::Seconds(4));
  EXPECT_EQ(h.serving.identity.fingerprint, "f");
  Pass(absl::Seconds(2));
  EXPECT_EQ(h.serving.identity.fingerprint, "g");
}

std::string NameOf(const ::testing::TestParamInfo<Mode>& info) {
  return std::string(ServingModeName(info.param));
}
INSTANTIATE_TEST_SUITE_P(Modes, IdentityTest, ::testing::ValuesIn(kModes), NameOf);
INSTANTIATE_TEST_SUITE_P(Modes, FixedIdentityTest, ::testing::ValuesIn(kModes), NameOf);

// Usable() counts pairs in mode disaggregated, decode workers in mode colocated, and in mode AUTO
// all workers of both roles that could get work.
TEST(UsableWorkersTest, AreCountedByTheRoutersMode) {
  const IdentityWorkers workers = {
      .attached = 9, .pairs = 6, .paired_prefill = 2, .paired_decode = 3, .ready_decode = 4};
  EXPECT_EQ(workers.Usable(ServingMode::kDisaggregated), 6);
  EXPECT_EQ(workers.Usable(ServingMode::kColocated), 4);
  EXPECT_EQ(workers.Usable(ServingMode::kAuto), 6);
}

// A request may ask for another mode than the router's own. It too goes only to workers of the
// identity that the router serves.
TEST_F(RouterCoreTest, ARequestOfAnotherModeGetsTheServedIdentity) {
  h.AttachFour();
  for (int i = 0; i < 3; ++i) {
    v1::Registration other =
        CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, absl::StrCat("o", i, ":1"), 50 + i);
    other.set_model_fingerprint("other");
    h.Attach(other);
  }
  CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
  request.mode = ServingMode::kColocated;
  request.answers = 8;
  h.Arrive(request);
  EXPECT_EQ(h.legs.size(), 8u);
  for (const auto& [key, leg] : h.legs) EXPECT_EQ(leg.worker.address[0], 'd');
}

// While there has been no pair yet, a decode worker alone can serve the requests that ask for
// colocated mode.
TEST_F(RouterCoreTest, WithoutAnyPairTheIdentityOfADecodeWorkerIsGuessed) {
  h.Attach(CoreHarness::WorkerOf(v1::WORKER_ROLE_PREFILL, "p:1", 1, "cpu"));
  h.Attach(CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, "d:1", 2, "device"));
  EXPECT_FALSE(h.serving.serving);
  EXPECT_EQ(h.serving.why,
            "of 1 prefill and 1 decode workers no two have the same protocol, model, layout and "
            "numerics: prefill worker p:1 and decode worker d:1 have numerics cpu and device; give "
            "both the same --backend");
  CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
  request.mode = ServingMode::kColocated;
  h.Arrive(request);
  EXPECT_EQ(h.legs.size(), 1u);
  EXPECT_EQ(h.serving.identity.numerics_id, "device");
  EXPECT_EQ(h.core.counters().identity_changes, 0u) << "nothing was served before";
}

TEST_F(RouterCoreTest, AProcessCannotChangeItsIdentity) {
  h.AttachFour();
  v1::Registration again = CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, "d1:1", 11);
  again.set_model_fingerprint("other");
  const AttachKey key = h.Attach(again);
  ASSERT_TRUE(h.closed.contains(key));
  EXPECT_EQ(h.closed.at(key).code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(h.closed.at(key).message()),
              AllOf(HasSubstr("other/n"), HasSubstr("f/n")));
  EXPECT_FALSE(h.closed.contains(h.d1)) << "the stream that it had goes on";
}

// --- Clients that wait are told why ---

TEST_F(RouterCoreTest, WhatDoesNotServeSaysWhy) {
  EXPECT_EQ(h.serving.why, "no worker is attached");
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p:1", 1);
  EXPECT_EQ(h.serving.why, "no decode worker is attached");
  EXPECT_EQ(h.serving.prefill_workers, 0u) << "alone it is of no use";
  h.d1 = h.Attach(v1::WORKER_ROLE_DECODE, "d:1", 2);
  EXPECT_THAT(
      h.serving.why,
      StartsWith("prefill worker p:1 and decode worker d:1 fit, and the decode worker is still "
                 "proving its KV link to the prefill worker; if that takes longer"));
  EXPECT_EQ(h.serving.decode_workers, 0u);
  h.loads.at(h.d1).add_links()->set_epoch(1);
  h.Report(h.d1);
  EXPECT_TRUE(h.serving.serving);
  EXPECT_EQ(h.serving.why, "");
  EXPECT_EQ(h.serving.prefill_workers, 1u);
  EXPECT_EQ(h.serving.decode_workers, 1u);
  h.loads.at(h.p1).set_draining(true);
  h.Report(h.p1);
  EXPECT_FALSE(h.serving.serving);
  EXPECT_THAT(h.serving.why, HasSubstr("none of 1 prefill workers is ready (draining"));
  EXPECT_EQ(h.serving.decode_workers, 0u);
  h.Tell(Drain{});
  EXPECT_THAT(h.serving.why, HasSubstr("the router is draining"));
}

TEST_F(RouterCoreTest, WorkersThatDoNotFitSayWhichFlagDiffers) {
  WorkerEpoch epoch = 1;
  const auto attach = [&](v1::WorkerRole role, uint32_t block_tokens, const std::string& kv_type,
                          const std::string& sums) {
    v1::Registration worker =
        CoreHarness::WorkerOf(role, role == v1::WORKER_ROLE_PREFILL ? "p:1" : "d:1", epoch++,
                              absl::StrCat(sums, "/kv-", kv_type));
    worker.set_block_tokens(block_tokens);
    worker.set_layout_fingerprint(
        absl::StrCat("block.layer.kv.head.token.dim/8x2x2x", block_tokens, "x64/", kv_type));
    h.Attach(worker);  // Replaces the worker that had this address.
    return h.serving.why;
  };
  attach(v1::WORKER_ROLE_PREFILL, 16, "bf16", "cpu-f32x16-v1");
  const auto says = [&](uint32_t block_tokens, const std::string& kv_type, const std::string& sums,
                        const std::string& difference) {
    EXPECT_THAT(attach(v1::WORKER_ROLE_DECODE, block_tokens, kv_type, sums),
                EndsWith("prefill worker p:1 and decode worker d:1 have " + difference));
  };
  says(32, "bf16", "cpu-f32x16-v1", "--block-tokens 16 and 32; give both the same --block-tokens");
  says(16, "f32", "cpu-f32x16-v1", "--kv-type bf16 and f32; give both the same --kv-type");
  says(16, "bf16", "cpu-amx-bf16-v1",
       "numerics cpu-f32x16-v1/kv-bf16 and cpu-amx-bf16-v1/kv-bf16; give both --numerics portable");
  says(64, "f32", "cuda-bf16-v1",
       "--block-tokens 16 and 64, --kv-type bf16 and f32, numerics cpu-f32x16-v1/kv-bf16 and "
       "cuda-bf16-v1/kv-f32; give both the same --block-tokens, --kv-type, --backend");
}

TEST_F(RouterCoreTest, AWorkerWithoutAPartnerIsNamedWhileOthersServe) {
  h.AttachFour();
  v1::Registration other = CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, "d9:1", 9);
  other.set_layout_fingerprint("l64");
  h.Attach(other);
  EXPECT_TRUE(h.serving.serving);
  EXPECT_EQ(h.serving.decode_workers, 2u);
  ASSERT_EQ(h.serving.unused.size(), 1u);
  EXPECT_EQ(h.serving.unused[0],
            "decode worker d9:1 is not used: decode worker d9:1 and prefill worker p1:1 have "
            "layout l64 and l");
}

// A router that cannot serve logs a warning after 5 s, and again every minute. A worker that gets
// no requests while others serve is named in one warning.
TEST_F(RouterCoreTest, WhatLastsIsAWarning) {
  const auto logged = [this](absl::Duration time) {
    testing::internal::CaptureStderr();
    for (absl::Duration done; done < time; done += absl::Seconds(1)) {
      h.Advance(absl::Seconds(1));
      h.ReportAll();
    }
    return testing::internal::GetCapturedStderr();
  };
  h.p1 = h.Attach(v1::WORKER_ROLE_PREFILL, "p:1", 1);
  const RequestKey r = h.Arrive(Prompt(5), 6);
  EXPECT_THAT(logged(absl::Seconds(4)), Not(HasSubstr("cannot_serve")));
  EXPECT_THAT(logged(absl::Seconds(1)),
              HasSubstr(" W baton cannot_serve why=\"no decode worker is attached\" "
                        "requests_waiting=1"));
  h.Tell(ClientCancelled{r});
  EXPECT_THAT(logged(absl::Seconds(59)), Not(HasSubstr("cannot_serve")));
  EXPECT_THAT(logged(absl::Seconds(1)), HasSubstr("requests_waiting=0"));
  h.d1 = h.Attach(v1::WORKER_ROLE_DECODE, "d:1", 2, {1});
  v1::Registration other = CoreHarness::WorkerOf(v1::WORKER_ROLE_DECODE, "o:1", 3, "other");
  h.Attach(other);
  EXPECT_THAT(logged(absl::Seconds(5)),
              HasSubstr(" W baton workers_not_used why=\"decode worker o:1 is not used: it has "
                        "identity f/other\""));
  EXPECT_THAT(logged(absl::Seconds(200)), Not(HasSubstr(" W ")));
}

// If a request ends in the queue, because its deadline passes or the router stops, its status says
// what the request was waiting for.
TEST_F(RouterCoreTest, HoweverAWaitForAPairEndsTheReasonIsInTheStatus) {
  CheckedRequest request = CoreHarness::Request(Prompt(5), 6);
  request.deadline = h.now + absl::Seconds(3);
  const RequestKey late = h.Arrive(request);
  h.Advance(absl::Seconds(4));
  ExpectFailed(late, Code::kDeadlineExceeded, "with 0 tokens generated; no worker is attached");
  const RequestKey stopped = h.Arrive(Prompt(5), 6);
  h.Tell(StopAll{});
  ExpectFailed(stopped, Code::kUnavailable, "the router is shutting down; no worker is attached");
}

}  // namespace
}  // namespace baton
