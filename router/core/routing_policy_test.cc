#include "router/core/routing_policy.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

// The conformance suite of the routing policies, then the tests of each policy by itself.
namespace baton {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

// Returns the key of the worker that the policy chooses.
WorkerKey Choose(RoutingPolicy* policy, LegKind leg,
                 const std::vector<RouteCandidate>& candidates) {
  return candidates.at(policy->Choose({.leg = leg, .prompt_tokens = 1000}, candidates)).key;
}

std::string NameOf(LegKind leg) {
  return leg == LegKind::kPrefill ? "Prefill" : leg == LegKind::kColocated ? "Colocated" : "Decode";
}

// Returns 1 to 8 workers in a random order. Many of their facts are equal, so that ties are common.
std::vector<RouteCandidate> RandomCandidates(LegKind leg, std::mt19937_64* random) {
  const auto below = [&](uint64_t limit) { return (*random)() % limit; };
  std::vector<RouteCandidate> candidates(1 + below(8));
  WorkerKey key = 0;
  for (RouteCandidate& worker : candidates) {
    key += 1 + below(3);
    worker = {.key = key,
              .avoid = below(3) == 0,
              .sibling = below(4) == 0,
              .has_room = leg == LegKind::kPrefill || below(2) == 0,
              .cached_tokens = 100 * below(3),
              .prompt_tokens = 100 * below(3),
              .prompts = below(3),
              .sequences = below(3),
              .max_batch = static_cast<uint32_t>(below(3)),
              .free_blocks = static_cast<int64_t>(below(3)) - 1};
  }
  std::shuffle(candidates.begin(), candidates.end(), *random);
  return candidates;
}

// The parameters are the policy and the kind of leg for which it chooses.
class RoutingPolicyTest : public testing::TestWithParam<std::tuple<RoutingPolicyKind, LegKind>> {
 protected:
  static std::unique_ptr<RoutingPolicy> Create(uint64_t seed = 1) {
    return CreateRoutingPolicy(std::get<0>(GetParam()), seed);
  }
  static LegKind leg() { return std::get<1>(GetParam()); }
  static WorkerKey Choose(RoutingPolicy* policy, const std::vector<RouteCandidate>& candidates) {
    return baton::Choose(policy, leg(), candidates);
  }
};

TEST_P(RoutingPolicyTest, ReturnsTheIndexOfACandidate) {
  std::mt19937_64 random(1);
  const auto policy = Create();
  for (int i = 0; i < 10000; ++i) {
    const auto candidates = RandomCandidates(leg(), &random);
    ASSERT_LT(policy->Choose({.leg = leg()}, candidates), candidates.size()) << i;
  }
}

TEST_P(RoutingPolicyTest, TheOnlyCandidateIsChosenWhateverItsState) {
  const auto policy = Create();
  for (const bool avoid : {false, true}) {
    for (const bool has_room : {false, true}) {
      EXPECT_EQ(Choose(policy.get(), {{.key = 7, .avoid = avoid, .has_room = has_room}}), 7u);
    }
  }
}

TEST_P(RoutingPolicyTest, EqualSeedsAndCallsGiveEqualChoices) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, kMax}) {
    std::mt19937_64 random(2);
    const auto one = Create(seed), other = Create(seed);
    for (int i = 0; i < 3000; ++i) {
      const auto candidates = RandomCandidates(leg(), &random);
      ASSERT_EQ(Choose(one.get(), candidates), Choose(other.get(), candidates)) << i;
    }
  }
}

TEST_P(RoutingPolicyTest, TheOrderOfTheCandidatesMakesNoDifference) {
  std::mt19937_64 random(3);
  const auto policy = Create(), of_shuffled = Create();
  for (int i = 0; i < 10000; ++i) {
    const auto candidates = RandomCandidates(leg(), &random);
    auto shuffled = candidates;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    ASSERT_EQ(Choose(policy.get(), candidates), Choose(of_shuffled.get(), shuffled)) << i;
  }
}

TEST_P(RoutingPolicyTest, AWorkerToAvoidIsChosenOnlyIfThereIsNoOther) {
  std::mt19937_64 random(4);
  const auto policy = Create();
  for (int i = 0; i < 10000; ++i) {
    const auto candidates = RandomCandidates(leg(), &random);
    const bool all = std::all_of(candidates.begin(), candidates.end(),
                                 [](const RouteCandidate& worker) { return worker.avoid; });
    const size_t chosen = policy->Choose({.leg = leg()}, candidates);
    ASSERT_EQ(candidates[chosen].avoid, all) << i;
  }
}

TEST_P(RoutingPolicyTest, AWorkerWithoutRoomIsChosenOnlyIfNoneHasRoom) {
  std::mt19937_64 random(5);
  const auto policy = Create();
  for (int i = 0; i < 10000; ++i) {
    const auto candidates = RandomCandidates(leg(), &random);
    const size_t chosen = policy->Choose({.leg = leg()}, candidates);
    // A worker to avoid is worse than one without room, so a worker with room counts only if its
    // `avoid` is equal to that of the chosen worker.
    const bool any =
        std::any_of(candidates.begin(), candidates.end(), [&](const RouteCandidate& worker) {
          return worker.has_room && worker.avoid == candidates[chosen].avoid;
        });
    ASSERT_EQ(candidates[chosen].has_room, any) << i;
  }
}

// Each leg counts as load of its worker while it is open, as in the router.
TEST_P(RoutingPolicyTest, EqualWorkersUnderLoadGetEqualShares) {
  constexpr int kWorkers = 10, kOpen = 10 * kWorkers, kLegs = 5000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto policy = Create(seed);
    std::vector<RouteCandidate> workers(kWorkers);
    for (int i = 0; i < kWorkers; ++i) {
      workers[i] = {.key = 100u + i, .max_batch = 16, .free_blocks = 1000};
    }
    std::vector<int> legs(kWorkers);
    std::deque<size_t> open;
    for (int i = 0; i < kLegs; ++i) {
      const size_t chosen = policy->Choose({.leg = leg()}, workers);
      ++legs[chosen];
      open.push_back(chosen);
      workers[chosen].prompt_tokens += 100;
      workers[chosen].prompts += 1;
      workers[chosen].sequences += 1;
      workers[chosen].free_blocks -= 10;
      if (open.size() <= kOpen) continue;
      RouteCandidate& done = workers[open.front()];
      open.pop_front();
      done.prompt_tokens -= 100;
      done.prompts -= 1;
      done.sequences -= 1;
      done.free_blocks += 10;
    }
    // No worker may get over a quarter more than its fair share.
    EXPECT_LE(*std::max_element(legs.begin(), legs.end()), kLegs / kWorkers * 5 / 4)
        << "seed " << seed;
  }
}

TEST_P(RoutingPolicyTest, TheOneGoodWorkerIsFoundAmongVeryMany) {
  const auto policy = Create();
  constexpr size_t kWorkers = 100000;
  for (const size_t good : {size_t{0}, kWorkers / 3, kWorkers - 1}) {
    std::vector<RouteCandidate> candidates(kWorkers);
    for (size_t i = 0; i < kWorkers; ++i) {
      // Prefill workers always have room, so all of them but the good one are workers to avoid.
      const bool prefill = leg() == LegKind::kPrefill;
      candidates[i] = {.key = i + 1,
                       .avoid = i != good && (prefill || i % 2 == 0),
                       .has_room = i == good || prefill};
    }
    EXPECT_EQ(Choose(policy.get(), candidates), good + 1);
  }
}

// Workers report their load, so a policy must cope with every value.
TEST_P(RoutingPolicyTest, ExtremeValuesBreakNoGuarantee) {
  constexpr int64_t kBlocks[] = {std::numeric_limits<int64_t>::min(), -1, 0,
                                 std::numeric_limits<int64_t>::max()};
  constexpr uint32_t kBatches[] = {0, 1, std::numeric_limits<uint32_t>::max()};
  std::vector<RouteCandidate> candidates;
  for (const uint64_t prompt_tokens : {uint64_t{0}, kMax}) {
    for (const uint64_t prompts : {uint64_t{0}, kMax}) {
      for (const uint64_t sequences : {uint64_t{0}, kMax}) {
        for (const uint32_t max_batch : kBatches) {
          for (const int64_t free_blocks : kBlocks) {
            for (const bool avoid : {false, true}) {
              for (const bool has_room : {false, true}) {
                candidates.push_back({.key = kMax - candidates.size(),
                                      .avoid = avoid,
                                      .has_room = has_room || leg() == LegKind::kPrefill,
                                      .prompt_tokens = prompt_tokens,
                                      .prompts = prompts,
                                      .sequences = sequences,
                                      .max_batch = max_batch,
                                      .free_blocks = free_blocks});
              }
            }
          }
        }
      }
    }
  }
  const std::vector<RouteCandidate> reversed(candidates.rbegin(), candidates.rend());
  const auto policy = Create(kMax), of_reversed = Create(kMax);
  for (size_t i = 0; i < 2 * candidates.size(); ++i) {
    const size_t chosen = policy->Choose({.leg = leg()}, candidates);
    ASSERT_LT(chosen, candidates.size());
    EXPECT_FALSE(candidates[chosen].avoid);
    EXPECT_TRUE(candidates[chosen].has_room);
    ASSERT_EQ(candidates[chosen].key, Choose(of_reversed.get(), reversed));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, RoutingPolicyTest,
                         testing::Combine(testing::ValuesIn(kRoutingPolicyKinds),
                                          testing::ValuesIn(kLegKinds)),
                         [](const auto& info) {
                           std::string name(RoutingPolicyName(std::get<0>(info.param)));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + NameOf(std::get<1>(info.param));
                         });

TEST(RoutingPolicyNameTest, EachNameGivesItsPolicyAndOthersAreRefused) {
  for (const RoutingPolicyKind kind : kRoutingPolicyKinds) {
    const auto found = RoutingPolicyFromName(RoutingPolicyName(kind));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, kind);
  }
  for (const char* name : {"", "random", "least", "round_robin", "Round-Robin"}) {
    const auto found = RoutingPolicyFromName(name);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
    for (const RoutingPolicyKind kind : kRoutingPolicyKinds) {
      EXPECT_THAT(std::string(found.status().message()),
                  testing::HasSubstr(std::string(RoutingPolicyName(kind))));
    }
  }
}

// In each case, the worker `better` is chosen rather than `worse`. Its key is the larger one, so
// that it is not chosen for its key.
TEST(LeastLoadedPolicyTest, TheFirstFactThatDiffersDecides) {
  struct Case {
    const char* what;
    LegKind leg;
    RouteCandidate better, worse;
  };
  const Case cases[] = {
      {"fewer prompt tokens",
       LegKind::kPrefill,
       {.prompt_tokens = 99, .prompts = 9, .free_blocks = 0},
       {.prompt_tokens = 100, .prompts = 1, .free_blocks = 9}},
      {"fewer prompts",
       LegKind::kPrefill,
       {.prompt_tokens = 100, .prompts = 1, .free_blocks = 0},
       {.prompt_tokens = 100, .prompts = 2, .free_blocks = 9}},
      {"more free blocks", LegKind::kPrefill, {.free_blocks = 9}, {.free_blocks = 8}},
      {"more free blocks, also below 0",
       LegKind::kPrefill,
       {.free_blocks = 0},
       {.free_blocks = -1}},
      {"more free blocks than the lowest number there is",
       LegKind::kPrefill,
       {.free_blocks = 0},
       {.free_blocks = std::numeric_limits<int64_t>::min()}},
      {"not to avoid", LegKind::kPrefill, {.prompt_tokens = kMax}, {.avoid = true}},

      {"room",
       LegKind::kColocated,
       {.prompt_tokens = 1000, .sequences = 50},
       {.has_room = false, .free_blocks = 9}},
      {"a sequence counts as 16 tokens",
       LegKind::kColocated,
       {.prompt_tokens = 15, .sequences = 1},
       {.prompt_tokens = 32}},
      {"a sequence counts as no less",
       LegKind::kColocated,
       {.prompt_tokens = 31},
       {.prompt_tokens = 16, .sequences = 1}},
      {"more free blocks",
       LegKind::kColocated,
       {.prompt_tokens = 16, .free_blocks = 9},
       {.sequences = 1, .free_blocks = 8}},
      {"less than the most there can be",
       LegKind::kColocated,
       {.prompt_tokens = 1000},
       {.prompt_tokens = kMax, .sequences = 1}},
      {"fewer sequences than there can be",
       LegKind::kColocated,
       {.sequences = 1000},
       {.sequences = kMax / 16 + 1}},
      {"not to avoid", LegKind::kColocated, {.has_room = false}, {.avoid = true}},

      {"room",
       LegKind::kDecode,
       {.sequences = 9, .max_batch = 10, .free_blocks = 5},
       {.has_room = false, .max_batch = 10, .free_blocks = 4}},
      {"a smaller share of the batch",
       LegKind::kDecode,
       {.sequences = 9, .max_batch = 64},
       {.sequences = 2, .max_batch = 8, .free_blocks = 9}},
      {"a worker without a known batch counts as one of 1",
       LegKind::kDecode,
       {.sequences = 7, .max_batch = 8},
       {.sequences = 1, .max_batch = 0}},
      {"more free blocks",
       LegKind::kDecode,
       {.sequences = 2, .max_batch = 4, .free_blocks = 9},
       {.sequences = 4, .max_batch = 8, .free_blocks = 8}},
      {"prompt tokens do not count",
       LegKind::kDecode,
       {.prompt_tokens = 1000, .free_blocks = 9},
       {.prompt_tokens = 0, .free_blocks = 8}},
      {"not to avoid", LegKind::kDecode, {.has_room = false}, {.avoid = true}},
  };
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kLeastLoaded, 0);
  for (Case c : cases) {
    c.better.key = 2;
    c.worse.key = 1;
    EXPECT_EQ(Choose(policy.get(), c.leg, {c.worse, c.better}), 2u) << NameOf(c.leg) << c.what;
  }
}

TEST(LeastLoadedPolicyTest, AmongEqualWorkersTheLowestKeyIsChosen) {
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kLeastLoaded, 0);
  for (const LegKind leg : kLegKinds) {
    EXPECT_EQ(Choose(policy.get(), leg, {{.key = 5}, {.key = 3}, {.key = 4}}), 3u) << NameOf(leg);
  }
}

// Asks the policy `count` times, with the same candidates.
std::vector<WorkerKey> Turns(RoutingPolicy* policy, LegKind leg, int count,
                             const std::vector<RouteCandidate>& candidates) {
  std::vector<WorkerKey> keys;
  for (int i = 0; i < count; ++i) keys.push_back(Choose(policy, leg, candidates));
  return keys;
}

TEST(PrefixPolicyTest, WeighsWhatIsCachedAgainstTheQueue) {
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kPrefix, 0);
  // 100 tokens that are cached weigh as much as 800 that wait.
  const RouteCandidate cached = {.key = 1, .cached_tokens = 100, .prompt_tokens = 799};
  const RouteCandidate too_long = {.key = 2, .cached_tokens = 100, .prompt_tokens = 808};
  const RouteCandidate idle = {.key = 3};
  for (const LegKind leg : {LegKind::kPrefill, LegKind::kColocated}) {
    EXPECT_EQ(Choose(policy.get(), leg, {cached, idle}), 1u) << NameOf(leg);
    EXPECT_EQ(Choose(policy.get(), leg, {too_long, idle}), 3u) << NameOf(leg);
  }
}

TEST(PrefixPolicyTest, AtDecodeCachedKvSparesOnlyAPull) {
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kPrefix, 0);
  // A sequence weighs as much as 16 * 32 tokens that are pulled.
  const RouteCandidate busy = {.key = 1, .cached_tokens = 480, .sequences = 1};
  const RouteCandidate large = {.key = 2, .cached_tokens = 640, .sequences = 1};
  const RouteCandidate idle = {.key = 3};
  EXPECT_EQ(Choose(policy.get(), LegKind::kDecode, {busy, idle}), 3u);
  EXPECT_EQ(Choose(policy.get(), LegKind::kDecode, {large, idle}), 2u);
}

TEST(PrefixPolicyTest, AnswersOfOneRequestStayTogetherWhileThereIsRoom) {
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kPrefix, 0);
  RouteCandidate sibling = {.key = 1, .sibling = true, .prompt_tokens = 100000, .sequences = 50};
  const RouteCandidate idle = {.key = 2, .cached_tokens = 1000};
  for (const LegKind leg : kLegKinds) {
    EXPECT_EQ(Choose(policy.get(), leg, {sibling, idle}), 1u) << NameOf(leg);
  }
  sibling.has_room = false;
  EXPECT_EQ(Choose(policy.get(), LegKind::kDecode, {sibling, idle}), 2u);
}

TEST(PrefixPolicyTest, EqualWorkersAreChosenAtRandom) {
  const std::vector<RouteCandidate> workers = {{.key = 1}, {.key = 2}, {.key = 3}};
  for (const LegKind leg : kLegKinds) {
    const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kPrefix, 7);
    const auto other = CreateRoutingPolicy(RoutingPolicyKind::kPrefix, 8);
    std::map<WorkerKey, int> chosen;
    int equal = 0;
    for (int i = 0; i < 3000; ++i) {
      const WorkerKey key = Choose(policy.get(), leg, workers);
      ++chosen[key];
      equal += key == Choose(other.get(), leg, workers);
    }
    ASSERT_EQ(chosen.size(), 3u);
    for (const auto& [key, times] : chosen) EXPECT_NEAR(times, 1000, 150) << NameOf(leg);
    EXPECT_NEAR(equal, 1000, 150) << "two routers choose alike";
  }
}

TEST(RoundRobinPolicyTest, TakesTheWorkersInTurnWhateverTheirLoad) {
  const std::vector<RouteCandidate> workers = {{.key = 8, .prompt_tokens = 100, .prompts = 3},
                                               {.key = 2, .sequences = 9, .max_batch = 9},
                                               {.key = 5, .free_blocks = 1000}};
  for (const LegKind leg : kLegKinds) {
    const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kRoundRobin, 0);
    EXPECT_THAT(Turns(policy.get(), leg, 7, workers), ElementsAre(2, 5, 8, 2, 5, 8, 2));
  }
}

TEST(RoundRobinPolicyTest, EachKindOfLegHasItsOwnTurn) {
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kRoundRobin, 0);
  const std::vector<RouteCandidate> workers = {{.key = 1}, {.key = 2}, {.key = 3}};
  EXPECT_THAT(Turns(policy.get(), LegKind::kColocated, 2, workers), ElementsAre(1, 2));
  EXPECT_THAT(Turns(policy.get(), LegKind::kDecode, 2, workers), ElementsAre(1, 2));
  EXPECT_THAT(Turns(policy.get(), LegKind::kPrefill, 4, workers), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(Turns(policy.get(), LegKind::kColocated, 2, workers), ElementsAre(3, 1));
}

TEST(RoundRobinPolicyTest, AWorkerThatCannotTakeItsTurnIsPassedOver) {
  const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kRoundRobin, 0);
  const auto next = [&](const std::vector<RouteCandidate>& workers) {
    return Choose(policy.get(), LegKind::kDecode, workers);
  };
  const RouteCandidate one = {.key = 1}, two = {.key = 2}, three = {.key = 3};
  EXPECT_EQ(next({one, two, three}), 1u);
  EXPECT_EQ(next({one, three}), 3u) << "worker 2 is busy";
  EXPECT_EQ(next({two, three}), 2u) << "worker 1 is gone";
  EXPECT_EQ(next({one, two, {.key = 3, .has_room = false}}), 1u);
  EXPECT_EQ(next({one, {.key = 2, .avoid = true}, three}), 3u);
  EXPECT_EQ(next({two, three, {.key = 4}}), 4u) << "worker 4 is new";
  EXPECT_EQ(next({{.key = 2, .has_room = false}, {.key = 3, .avoid = true}}), 2u);
}

TEST(RoundRobinPolicyTest, TheSeedDecidesWhichWorkerIsTheFirst) {
  const std::vector<RouteCandidate> workers = {{.key = 30}, {.key = 10}, {.key = 20}};
  std::map<WorkerKey, int> first;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto policy = CreateRoutingPolicy(RoutingPolicyKind::kRoundRobin, seed);
    ++first[Choose(policy.get(), LegKind::kPrefill, workers)];
  }
  EXPECT_THAT(first, ElementsAre(std::pair(10, 100), std::pair(20, 100), std::pair(30, 100)));
}

}  // namespace
}  // namespace baton
