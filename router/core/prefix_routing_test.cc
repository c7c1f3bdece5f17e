#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/core/worker_caches.h"
#include "router/testing/router_core_fixture.h"

// Tests how the core learns which blocks the workers have cached, and how it then chooses workers.
namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int kBlockTokens = 16;  // as in the registrations of CoreHarness

BlockName Named(uint64_t n) { return {n, n + 1000}; }
std::vector<BlockName> Names(uint64_t first, int count) {
  std::vector<BlockName> names;
  for (int i = 0; i < count; ++i) names.push_back(Named(first + static_cast<uint64_t>(i)));
  return names;
}

class PrefixRoutingTest : public ::testing::Test {
 protected:
  PrefixRoutingTest() { Begin(ServingMode::kDisaggregated); }

  void Begin(ServingMode mode, bool caches = true, int auto_queue_tokens = 4096) {
    caches_ = caches;
    RouterCoreOptions options = CoreHarness::Options();
    options.prefix_index_bytes = 1 << 20;
    options.policy = RoutingPolicyKind::kPrefix;
    options.mode = mode;
    options.auto_queue_tokens = auto_queue_tokens;
    options.metrics = &metrics_;
    harness_ = std::make_unique<CoreHarness>(options);
    CoreHarness& h = *harness_;
    p1_ = Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1, {});
    p2_ = Attach(v1::WORKER_ROLE_PREFILL, "p2:1", 2, {});
    d1_ = Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1, 2});
    d2_ = Attach(v1::WORKER_ROLE_DECODE, "d2:1", 12, {1, 2});
    h.Settle();
  }
  AttachKey Attach(v1::WorkerRole role, const std::string& address, WorkerEpoch epoch,
                   const std::vector<WorkerEpoch>& links) {
    v1::Registration registration = CoreHarness::WorkerOf(role, address, epoch);
    registration.set_prefix_cache(caches_);
    return harness_->Attach(registration, links);
  }
  CoreHarness& hub() { return *harness_; }

  // A message with the changes that have the numbers `after` + 1 to `last`. Adds these blocks,
  // which follow each other.
  static v1::CacheChanges Changes(uint64_t after, uint64_t last,
                                  const std::vector<BlockName>& added = {}) {
    v1::CacheChanges changes;
    changes.set_after(after);
    changes.set_last(last);
    std::string* const names = changes.add_added()->mutable_names();
    for (const BlockName& name : added) AppendBytes(name, names);
    return changes;
  }
  // Tells that a worker keeps these blocks, which follow each other, and no others.
  void Keeps(AttachKey worker, const std::vector<BlockName>& names) {
    hub().Tell(WorkerCached{worker, Changes(0, names.size(), names)});
  }
  // A request whose prompt fills the named blocks, and has some tokens more.
  static CheckedRequest Request(std::vector<BlockName> names, int more = 5) {
    CheckedRequest request = CoreHarness::Request(
        Prompt(static_cast<int>(names.size()) * kBlockTokens + more), /*max_tokens=*/4);
    request.block_names = std::make_shared<const std::vector<BlockName>>(std::move(names));
    return request;
  }
  // Serves the request, and returns the addresses of the workers that computed and decoded it.
  std::pair<std::string, std::string> Serve(CheckedRequest request) {
    const RequestKey key = hub().Arrive(std::move(request));
    if (const LegKey prefill = hub().PrefillLeg(); prefill != 0) {
      hub().RunToEnd();
    } else {
      hub().FinishDecode(hub().DecodeLeg());
    }
    const ClientSide& client = hub().clients.at(key);
    EXPECT_TRUE(client.status && client.status->ok());
    return {client.summary->prefill_worker, client.summary->decode_worker};
  }

  bool caches_ = true;
  RequestMetrics metrics_;
  std::unique_ptr<CoreHarness> harness_;
  AttachKey p1_ = 0, p2_ = 0, d1_ = 0, d2_ = 0;
};

TEST_F(PrefixRoutingTest, APromptGoesToTheWorkersThatHaveItCached) {
  Keeps(p2_, Names(1, 8));
  Keeps(d1_, Names(1, 8));
  Keeps(p1_, Names(100, 8));
  Keeps(d2_, Names(100, 8));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Serve(Request(Names(1, 8))), Pair("p2:1", "d1:1"));
    EXPECT_THAT(Serve(Request(Names(100, 8))), Pair("p1:1", "d2:1"));
    hub().Advance(absl::Seconds(1));
    hub().ReportAll();
  }
}

TEST_F(PrefixRoutingTest, ALongQueueOutweighsASmallHit) {
  Keeps(p1_, Names(1, 1));
  // Occupies worker 1 with a prompt that is longer than what worker 2 would have to compute.
  Keeps(p2_, {});
  hub().Arrive(Request(Names(1, 20)));
  ASSERT_EQ(hub().At(hub().PrefillLeg()).worker.address, "p1:1");
  hub().Arrive(Request({Named(1), Named(50)}));
  std::vector<std::string> addresses;
  for (const auto& [key, leg] : hub().legs) addresses.push_back(leg.worker.address);
  EXPECT_THAT(addresses, ElementsAre("p1:1", "p2:1"));
}

TEST_F(PrefixRoutingTest, WhatWasJustRoutedCountsAsCachedForAWhile) {
  const auto [first, decode] = Serve(Request(Names(1, 8)));
  for (int i = 0; i < 6; ++i) EXPECT_THAT(Serve(Request(Names(1, 8))), Pair(first, decode));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 8)), ElementsAre(Pair(decode, 8), Pair(first, 8)));
  for (int i = 0; i < 6; ++i) {
    hub().Advance(absl::Seconds(1));
    hub().ReportAll();
  }
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 8)), IsEmpty());
}

TEST_F(PrefixRoutingTest, APromptThatWasJustSentAndChangesOfTheWorkerCountTogether) {
  const auto [prefill, decode] = Serve(Request(Names(1, 8)));
  // Each worker has told less than what was sent to it, and then more.
  for (const int told : {3, 20}) {
    Keeps(prefill == "p1:1" ? p1_ : p2_, Names(1, told));
    Keeps(decode == "d1:1" ? d1_ : d2_, Names(1, told));
    const int expected = std::max(8, told);
    EXPECT_THAT(hub().core.KeepersOf(Names(1, 30)),
                ElementsAre(Pair(decode, expected), Pair(prefill, expected)));
  }
}

class ForgetTest : public PrefixRoutingTest {
 protected:
  // Plays a request of 133 prompt tokens until its decode worker has sent two tokens.
  void Decode() {
    hub().Arrive(Request(Names(1, 8)));
    hub().Ticket(hub().PrefillLeg());
    hub().First(hub().PrefillLeg());
    hub().Reserve(hub().DecodeLeg());
    hub().Tokens(hub().DecodeLeg(), 0, 2);
  }
  // Returns the workers that have been told to forget, with the number of tokens, and answers for
  // them.
  std::map<std::string, size_t> Forgets() {
    std::map<std::string, size_t> told;
    std::vector<LegKey> legs;
    for (const auto& [key, leg] : hub().legs) {
      if (!leg.forgets()) continue;
      told[leg.worker.address] = leg.tokens().size();
      EXPECT_EQ(leg.prompt(), 133u);
      legs.push_back(key);
    }
    for (const LegKey key : legs) hub().End(key, absl::OkStatus());
    return told;
  }
};

// The decode worker may have failed because of KV that it pulled, so the prefill worker must not
// give this KV to others.
TEST_F(ForgetTest, BothWorkersForgetAfterAnErrorThatWrongKvMayHaveCaused) {
  for (const absl::Status& error : {absl::InternalError("x"), absl::DataLossError("x")}) {
    Begin(ServingMode::kDisaggregated);
    Decode();
    const std::string prefill = hub().At(hub().PrefillLeg()).worker.address;
    const std::string decode = hub().At(hub().DecodeLeg()).worker.address;
    hub().End(hub().DecodeLeg(), error);
    EXPECT_THAT(Forgets(), ElementsAre(Pair(decode, 135), Pair(prefill, 135)));
    hub().Advance(absl::Seconds(1));
    hub().RunToEnd();
    EXPECT_TRUE(hub().clients.begin()->second.status->ok());
    EXPECT_EQ(hub().core.legs(), 0u);
  }
}

TEST_F(ForgetTest, AWorkerWhoseTokensCannotBeRightForgets) {
  Decode();
  hub().Token(hub().DecodeLeg(), kHarnessVocab, 135);
  EXPECT_EQ(Forgets().size(), 2u);
}

TEST_F(ForgetTest, TheWorkerOfAColocatedAttemptForgets) {
  Begin(ServingMode::kColocated);
  hub().Arrive(Request(Names(1, 8)));
  hub().Reserve(hub().DecodeLeg());
  const std::string worker = hub().At(hub().DecodeLeg()).worker.address;
  hub().End(hub().DecodeLeg(), absl::InternalError("x"));
  EXPECT_THAT(Forgets(), ElementsAre(Pair(worker, 133)));
}

TEST_F(ForgetTest, OtherErrorsAndWorkersWithoutACacheNeedNoForgetting) {
  Decode();
  hub().End(hub().DecodeLeg(), absl::UnavailableError("gone"));
  EXPECT_THAT(Forgets(), IsEmpty());
  Begin(ServingMode::kDisaggregated, /*caches=*/false);
  Decode();
  hub().End(hub().DecodeLeg(), absl::InternalError("x"));
  EXPECT_THAT(Forgets(), IsEmpty());
}

TEST_F(ForgetTest, AStoppingRouterWaitsForNoWorkerThatHasToForget) {
  Decode();
  hub().End(hub().DecodeLeg(), absl::InternalError("x"));
  hub().Tell(StopAll{});
  EXPECT_EQ(hub().core.legs(), 0u);
}

TEST_F(PrefixRoutingTest, WorkersWithoutACacheKeepNothing) {
  Begin(ServingMode::kDisaggregated, /*caches=*/false);
  Serve(Request(Names(1, 8)));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 8)), IsEmpty());
}

TEST_F(PrefixRoutingTest, ARequestThatMayFindNothingGoesAnywhere) {
  CheckedRequest opted_out = Request(Names(1, 8));
  opted_out.prefix_cache = false;
  Serve(std::move(opted_out));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 8)), IsEmpty());
}

TEST_F(PrefixRoutingTest, AutoLetsADecodeWorkerComputeAShortRest) {
  Begin(ServingMode::kAuto);
  Keeps(d2_, Names(1, 8));
  // 256 tokens are the limit of auto_uncached_tokens.
  EXPECT_THAT(Serve(Request(Names(1, 8), /*more=*/256)), Pair("d2:1", "d2:1"));
  Keeps(d2_, Names(1, 8));
  hub().Advance(absl::Seconds(6));
  hub().ReportAll();
  EXPECT_EQ(Serve(Request(Names(1, 8), /*more=*/257)).first[0], 'p');
}

TEST_F(PrefixRoutingTest, AutoSendsAPromptOfWhichNothingIsCachedToAPrefillWorker) {
  Begin(ServingMode::kAuto);
  Keeps(d2_, Names(1, 8));
  EXPECT_EQ(Serve(Request(Names(50, 8))).first[0], 'p');
}

TEST_F(PrefixRoutingTest, AutoPassesOverADecodeWorkerWithALongQueue) {
  Begin(ServingMode::kAuto, /*caches=*/true, /*auto_queue_tokens=*/300);
  Keeps(d2_, Names(1, 8));
  CheckedRequest longer = Request(Names(1, 20), /*more=*/120);
  longer.mode = ServingMode::kColocated;
  hub().Arrive(std::move(longer));
  ASSERT_EQ(hub().At(hub().DecodeLeg()).worker.address, "d2:1");
  hub().Arrive(Request(Names(1, 8)));
  EXPECT_NE(hub().PrefillLeg(), 0u);
}

TEST_F(PrefixRoutingTest, AutoPassesOverADecodeWorkerWithoutFreeBlocksOrWithAFullBatch) {
  for (const bool full_batch : {false, true}) {
    Begin(ServingMode::kAuto);
    Keeps(d2_, Names(1, 8));
    full_batch ? hub().loads[d2_].set_running(64) : hub().loads[d2_].set_free_blocks(0);
    hub().ReportAll();
    hub().Arrive(Request(Names(1, 8)));
    EXPECT_NE(hub().PrefillLeg(), 0u) << full_batch;
  }
}

TEST_F(PrefixRoutingTest, ATicketThatIsRefusedLeavesNoHint) {
  hub().Arrive(Request(Names(1, 8)));
  const LegKey prefill = hub().PrefillLeg();
  hub().Ticket(prefill);
  const LegKey refused = hub().DecodeLeg();
  const std::string address = hub().At(refused).worker.address;
  hub().End(refused, absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(hub().core.KeepersOf(Names(1, 8)).contains(address));
  hub().Reserve(hub().DecodeLeg());
  EXPECT_TRUE(
      hub().core.KeepersOf(Names(1, 8)).contains(hub().At(hub().DecodeLeg()).worker.address));
}

TEST_F(PrefixRoutingTest, ChangesAreASignOfLife) {
  for (int i = 0; i < 4; ++i) {
    hub().Advance(absl::Seconds(2));
    for (const AttachKey attach : {p1_, d1_}) Keeps(attach, {});
  }
  // Workers p2 and d2 have said nothing for 8 s, so they get nothing.
  EXPECT_THAT(Serve(Request(Names(1, 8))), Pair("p1:1", "d1:1"));
}

TEST_F(PrefixRoutingTest, DisaggregatedPromptsGoToPrefillWorkersWhateverDecodeHas) {
  Keeps(d2_, Names(1, 8));
  EXPECT_EQ(Serve(Request(Names(1, 8))).first[0], 'p');
}

TEST_F(PrefixRoutingTest, AllAnswersOfARequestGoToOnePair) {
  CheckedRequest request = Request(Names(1, 8));
  request.answers = 4;
  const RequestKey key = hub().Arrive(std::move(request));
  std::set<std::string> prefill, decode;
  for (uint32_t index = 0; index < 4; ++index) {
    const LegKey leg = hub().PrefillLegOfAnswer(index);
    prefill.insert(hub().At(leg).worker.address);
    hub().Ticket(leg);
    hub().First(leg);
    decode.insert(hub().At(hub().DecodeLegOf(leg)).worker.address);
  }
  EXPECT_EQ(prefill.size(), 1u);
  EXPECT_EQ(decode.size(), 1u);
  hub().Tell(ClientCancelled{key});
}

TEST_F(PrefixRoutingTest, AnswersThatShareNothingAreSpread) {
  for (const bool caches : {false, true}) {
    Begin(ServingMode::kDisaggregated, caches);
    CheckedRequest request = Request(Names(1, 8));
    request.answers = 4;
    request.prefix_cache = !caches;  // either the workers or the request use no cache
    if (caches) request.block_names = nullptr;
    const RequestKey key = hub().Arrive(std::move(request));
    std::set<std::string> prefill;
    for (uint32_t index = 0; index < 4; ++index) {
      prefill.insert(hub().At(hub().PrefillLegOfAnswer(index)).worker.address);
    }
    EXPECT_EQ(prefill.size(), 2u) << caches;
    hub().Tell(ClientCancelled{key});
  }
}

TEST_F(PrefixRoutingTest, LoadOfOtherRoutersIsSeenBehindCachedPrompts) {
  Keeps(p1_, Names(1, 100));
  Keeps(p2_, {});
  hub().Arrive(Request(Names(1, 100)));  // 1,605 tokens, of which 1,600 are cached
  ASSERT_EQ(hub().At(hub().PrefillLeg()).worker.address, "p1:1");
  hub().loads[p1_].set_waiting_tokens(1500);  // those of other routers
  hub().ReportAll();
  hub().Arrive(Request({Named(1), Named(500)}));
  std::vector<std::string> addresses;
  for (const auto& [key, leg] : hub().legs) addresses.push_back(leg.worker.address);
  EXPECT_THAT(addresses, ElementsAre("p1:1", "p2:1"));
}

TEST_F(PrefixRoutingTest, ARequestThatMustFindNothingIsRoutedByLoadAlone) {
  // The only difference between the two prefill workers is that p2 has the prompt cached.
  const auto prefill_worker = [this](bool scores) {
    Begin(ServingMode::kDisaggregated);
    Keeps(p2_, Names(1, 8));
    // Occupies p2 with less than what it has cached.
    CheckedRequest other = Request(Names(1, 8), /*more=*/100);
    hub().Arrive(std::move(other));
    EXPECT_EQ(hub().At(hub().PrefillLeg()).worker.address, "p2:1");
    const LegKey first = hub().PrefillLeg();
    CheckedRequest request = Request(Names(1, 8));
    if (scores) request.sampling.prompt_logprobs = 0;
    hub().Arrive(std::move(request));
    for (const auto& [key, leg] : hub().legs) {
      if (key != first) return leg.worker.address;
    }
    return std::string();
  };
  EXPECT_EQ(prefill_worker(/*scores=*/false), "p2:1");
  EXPECT_EQ(prefill_worker(/*scores=*/true), "p1:1");
}

TEST_F(PrefixRoutingTest, WithoutAnIndexMessagesAreTakenAndNothingIsKnown) {
  harness_ = std::make_unique<CoreHarness>();
  const AttachKey worker = hub().Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
  hub().core.Handle(WorkerCached{worker, Changes(0, 1)}, hub().now);
  bool taken = false;
  for (const CoreAction& action : hub().core.TakeActions()) {
    taken |= std::holds_alternative<ReportTaken>(action);
  }
  EXPECT_TRUE(taken);
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 1)), IsEmpty());
}

TEST_F(PrefixRoutingTest, MessagesOfAStreamThatIsGoneAreIgnored) {
  hub().Tell(WorkerDetached{p1_});
  Keeps(p1_, Names(1, 3));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 3)), IsEmpty());
}

TEST_F(PrefixRoutingTest, MissingChangesCloseTheStream) {
  Keeps(p1_, Names(1, 3));
  hub().Tell(WorkerCached{p1_, Changes(3, 5)});
  EXPECT_FALSE(hub().closed.contains(p1_));
  hub().Tell(WorkerCached{p1_, Changes(6, 7)});
  ASSERT_TRUE(hub().closed.contains(p1_));
  EXPECT_EQ(hub().closed.at(p1_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(hub().closed.at(p1_).message()),
              HasSubstr("after number 6 came, those after 5 were expected"));
}

TEST_F(PrefixRoutingTest, ANewStreamTellsEverythingAnew) {
  Keeps(p1_, Names(1, 3));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 3)), ElementsAre(Pair("p1:1", 3)));
  const AttachKey again = Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1, {});
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 3)), ElementsAre(Pair("p1:1", 3)));
  hub().Tell(WorkerCached{again, Changes(3, 4)});
  EXPECT_TRUE(hub().closed.contains(again)) << "the first changes of a stream follow number 0";
  const AttachKey third = Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1, {});
  Keeps(third, Names(1, 2));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 3)), ElementsAre(Pair("p1:1", 2)));
}

TEST_F(PrefixRoutingTest, AProcessThatIsGoneKeepsNothing) {
  Keeps(p1_, Names(1, 3));
  EXPECT_EQ(metrics_.prefix_index_names.value(), 3);
  Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 99, {});
  hub().Advance(absl::Seconds(1));
  EXPECT_THAT(hub().core.KeepersOf(Names(1, 3)), IsEmpty());
  EXPECT_EQ(metrics_.prefix_index_names.value(), 0);
}

TEST_F(PrefixRoutingTest, ManyChangesAreTakenInSeveralTurns) {
  v1::CacheChanges changes = Changes(0, 4000);
  for (const BlockName& name : Names(1, 4000)) {
    AppendBytes(name, changes.add_added()->mutable_names());
  }
  hub().core.Handle(WorkerCached{p1_, std::move(changes)}, hub().now);
  int turns = 0;
  for (bool taken = false; !taken; ++turns) {
    ASSERT_LT(turns, 100);
    hub().core.RunOnce(hub().now);
    for (const CoreAction& action : hub().core.TakeActions()) {
      taken |= std::holds_alternative<ReportTaken>(action);
    }
    EXPECT_EQ(hub().core.KeepersOf({Named(4000)}).empty(), !taken);
  }
  for (const BlockName& name : Names(1, 4000)) {
    ASSERT_THAT(hub().core.KeepersOf({name}), ElementsAre(Pair("p1:1", 1)));
  }
  EXPECT_EQ(turns, 4000 / static_cast<int>(WorkerCaches::kChangesPerTurn));
}

TEST(CacheChangesTest, RunsAndRemovalsAreReadInParts) {
  v1::CacheChanges changes;
  for (int i = 9; i < 12; ++i) AppendBytes(Named(i), changes.mutable_removed());
  v1::CacheRun* first = changes.add_added();
  AppendBytes(Named(1), first->mutable_names());
  AppendBytes(Named(2), first->mutable_names());
  changes.add_added();  // a run without names
  v1::CacheRun* second = changes.add_added();
  AppendBytes(Named(1), second->mutable_parent());
  AppendBytes(Named(3), second->mutable_names());
  AppendBytes(Named(4), second->mutable_names());
  const std::vector<PrefixIndex::Change> expected = {
      {false, Named(9), {}},      {false, Named(10), {}},     {false, Named(11), {}},
      {true, Named(1), {}},       {true, Named(2), Named(1)}, {true, Named(3), Named(1)},
      {true, Named(4), Named(3)},
  };
  ASSERT_TRUE(CheckCacheChanges(changes).ok());
  for (size_t max = 1; max <= expected.size() + 1; ++max) {
    CacheChangeReader reader(changes);
    std::vector<PrefixIndex::Change> all, next;
    while (reader.more()) {
      reader.Read(max, &next);
      EXPECT_LE(next.size(), max);
      all.insert(all.end(), next.begin(), next.end());
    }
    reader.Read(max, &next);
    EXPECT_THAT(next, IsEmpty());
    EXPECT_THAT(all, ElementsAreArray(expected)) << "in parts of " << max;
  }
}

TEST(CacheChangesTest, AMessageWithoutNamesHasNoChanges) {
  CacheChangeReader reader{v1::CacheChanges()};
  std::vector<PrefixIndex::Change> next(3);
  reader.Read(1, &next);
  EXPECT_THAT(next, IsEmpty());
  EXPECT_FALSE(reader.more());
}

TEST(CacheChangesTest, RefusesWhatBreaksTheProtocol) {
  const auto refusal = [](const v1::CacheChanges& changes) {
    const absl::Status status = CheckCacheChanges(changes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::CacheChanges changes;
  changes.set_after(2);
  changes.set_last(1);
  EXPECT_EQ(refusal(changes), "cache.last is 1, and cache.after is 2");
  changes.set_last(2);
  changes.set_removed("123");
  EXPECT_EQ(refusal(changes), "cache.removed has 3 bytes; names have 16 bytes each");
  changes.clear_removed();
  changes.add_added()->set_names(std::string(17, 'x'));
  EXPECT_EQ(refusal(changes), "cache.added.names has 17 bytes; names have 16 bytes each");
  changes.mutable_added(0)->set_names(std::string(16, 'x'));
  changes.mutable_added(0)->set_parent("x");
  EXPECT_EQ(refusal(changes), "cache.added.parent has 1 bytes; it takes 0 or 16");
  changes.mutable_added(0)->clear_parent();
  changes.mutable_added(0)->set_names(std::string(16 * 4097, 'x'));
  EXPECT_EQ(refusal(changes), "cache has 4097 names; at most 4096");
}

}  // namespace
}  // namespace baton
