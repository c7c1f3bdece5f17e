#include <iostream>

#include "absl/strings/match.h"
#include "common/base/histories.h"
#include "common/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/history.h"
#include "tests/sim/sim_cluster.h"

namespace baton {
namespace {

// Counts over all histories of a test.
struct Totals {
  int answered = 0, cancelled = 0, given_up = 0, with_hit = 0, with_decode_hit = 0;
  uint64_t cached_tokens = 0, data_loss = 0, migrations = 0;
  int kills = 0, broken_rpcs = 0;  // killed workers, and their open RPCs
  uint64_t steps_ahead = 0;  // steps that began before the tokens of the one before were there
  int by_other_routers = 0;  // requests that a router other than the first has answered
};

// Returns true if the router ended a request because of its limits on retries.
bool GaveUp(const absl::Status& status) {
  return (absl::IsUnavailable(status) && absl::StartsWith(status.message(), "not tried again")) ||
         (absl::IsInternal(status) && absl::StartsWith(status.message(), "gave up after"));
}

// One random history of a small cluster whose requests share prefixes. Everything follows from the
// seed: the number of routers and workers, the sizes of the pools, the faults, the kills of
// workers, and the requests.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed), cluster_(OptionsFor(seed)) {
    for (int i = 0; i < 3; ++i) documents_.push_back(Tokens(16 + Below(kContext / 2)));
    if (Below(3) == 0) cluster_.SetFaults(Faults());
    for (int i = 0; i < cluster_.workers(); ++i) living_.push_back(i);
  }

  void Run() {
    absl::Time arrival = cluster_.now();
    const int requests = 8 + Below(16);
    int kills = Below(3) == 0 ? 1 + Below(2) : 0;
    for (int i = 0; i < requests; ++i) {
      arrival += absl::Microseconds(Below(20000));
      // Sometimes waits until all earlier requests have ended, so that only the cache holds blocks.
      if (Below(6) == 0) {
        cluster_.RunUntilIdle(absl::Minutes(10));
        arrival = std::max(arrival, cluster_.now());
      }
      clients_.push_back(cluster_.Add(Request(i, arrival), Below(cluster_.routers())));
      if (Below(6) == 0) clients_.back()->cancel_at = arrival + absl::Milliseconds(1 + Below(60));
      if (kills > 0 && Below(requests - i) < kills) {
        --kills;
        cluster_.At(arrival + absl::Microseconds(Below(40000)), [this] { KillAndRestart(); });
      }
    }
    cluster_.RunUntilIdle(absl::Minutes(10));
    cluster_.RunUntil(settled_at_);
  }

  void Check(Totals* totals) {
    const auto counters_of = [this](const SimClient& client) {
      return cluster_.router(client.router).counters();
    };
    for (const SimClient* client : clients_) {
      const CheckedRequest& request = client->request;
      ASSERT_TRUE(client->status) << request.request_id;
      const std::vector<TokenId> expected = cluster_.Expected(request);
      if (!client->status->ok()) {
        // If many attempts break, a request may fail because of the limits on retries.
        const bool given_up = counters_of(*client).migrations >= 10 && GaveUp(*client->status);
        EXPECT_TRUE(client->cancelled || given_up) << request.request_id << ": " << *client->status;
        totals->given_up += given_up;
        ASSERT_LE(client->tokens.size(), expected.size());
        EXPECT_TRUE(std::equal(client->tokens.begin(), client->tokens.end(), expected.begin()));
        totals->cancelled += client->cancelled;
        continue;
      }
      EXPECT_EQ(client->tokens, expected) << request.request_id;
      ExpectLogprobs(*client, request, 0);
      ASSERT_EQ(client->others.size(), static_cast<size_t>(request.answers - 1));
      for (const auto& [index, tokens] : client->others) {
        CheckedRequest one = request;
        one.sampling.answer_index = index;
        EXPECT_EQ(tokens, cluster_.Expected(one)) << request.request_id << ", answer " << index;
        ExpectLogprobs(*client, one, index);
      }
      const uint32_t cached = client->summary->usage.cached_tokens;
      const uint32_t decode_cached = client->summary->decode_cached_tokens;
      // Only the first answer has logprobs of the prompt. Its retry needs none if the first attempt
      // has sent all of them.
      const bool scores = request.sampling.prompt_logprobs && request.answers == 1 &&
                          client->summary->migrations == 0;
      if (!request.prefix_cache || scores) {
        EXPECT_EQ(cached, 0u) << request.request_id;
      }
      if (!request.prefix_cache) {
        EXPECT_EQ(decode_cached, 0u) << request.request_id;
      }
      EXPECT_EQ(cached % kBlockTokens, 0u);
      EXPECT_LT(cached, request.prompt.size());
      ++totals->answered;
      totals->by_other_routers += client->router > 0;
      totals->with_hit += cached > 0;
      totals->with_decode_hit += decode_cached > 0;
      totals->cached_tokens += cached;
    }
    for (const SimClient* client : clients_) cluster_.ExpectRoutersKnow(client->request);
    cluster_.ExpectAllBack();
    for (int router = 0; router < cluster_.routers(); ++router) {
      const RouterCounters& counters = cluster_.router(router).counters();
      EXPECT_EQ(counters.diverged, 0u);
      totals->data_loss += counters.data_loss;
      totals->migrations += counters.migrations;
    }
    totals->steps_ahead += cluster_.steps_ahead();
    totals->kills += kills_;
    totals->broken_rpcs += broken_rpcs_;
  }

 private:
  static constexpr int kContext = 128, kBlockTokens = 8;
  static constexpr absl::Duration kForgetAfter = absl::Milliseconds(500);

  // A token's logprob depends on all logits of its position. So it is a hash of them.
  void ExpectLogprobs(const SimClient& client, const CheckedRequest& request, uint32_t index) {
    if (!request.sampling.logprobs) return;
    std::vector<float> expected;
    cluster_.Expected(request, 0, &expected);
    const auto found = client.logprobs.find(index);
    ASSERT_TRUE(found != client.logprobs.end()) << request.request_id;
    EXPECT_EQ(found->second, expected) << request.request_id << ", answer " << index;
  }

  // Returns a random number from 0 to n-1.
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  std::vector<TokenId> Tokens(int n) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(Below(256));
    return tokens;
  }

  static SimCluster::Options OptionsFor(uint64_t seed) {
    std::mt19937_64 random(seed * 7919 + 1);
    SimCluster::Options options;
    options.seed = seed;
    options.prefill_workers = Between(random, 1, 3);
    options.decode_workers = Between(random, 1, 3);
    options.context = kContext;
    options.block_tokens = kBlockTokens;
    // A pool must hold one whole sequence, 16 blocks. The smallest pools evict all the time.
    options.prefill_blocks = Between(random, 17, 80);
    options.decode_blocks = Between(random, 17, 80);
    options.prefill = {.chunk_tokens = 8 * Between(random, 1, 8),
                       .slice_bytes = 1024,
                       .reuse_last_freed = random() % 2 == 0};
    options.decode = {.max_batch = Between(random, 2, 16),
                      .max_sequences = Between(random, 2, 16),
                      .chunk_tokens = Between(random, 1, 64),
                      .reuse_last_freed = random() % 2 == 0};
    if (random() % 3 == 0) options.long_rope_from = 40;
    options.mode = static_cast<ServingMode>(1 + random() % 3);
    options.max_cache_changes = 1 + random() % 8;
    options.adjust_router = [policy = random()](RouterCoreOptions* router) {
      router->policy = kRoutingPolicyKinds[policy % std::size(kRoutingPolicyKinds)];
      router->forget_after = kForgetAfter;
    };
    options.routers = Between(random, 1, 3);
    options.one_step_ahead = random() % 2 == 0;
    return options;
  }

  // Kills a random worker. A new process takes its place some milliseconds later.
  void KillAndRestart() {
    if (living_.empty()) return;
    const auto chosen = living_.begin() + Below(static_cast<int>(living_.size()));
    const int worker = *chosen;
    living_.erase(chosen);
    // Routers often learn of the new process first.
    const absl::Duration notice = absl::Milliseconds(Below(2) == 0 ? 1 : Below(100));
    broken_rpcs_ += cluster_.Kill(worker, notice);
    ++kills_;
    const absl::Time back = cluster_.now() + absl::Milliseconds(1 + Below(60));
    cluster_.At(back, [this, worker, same_address = Below(3) > 0] {
      living_.push_back(cluster_.Restart(worker, same_address));
    });
    settled_at_ = std::max(back, cluster_.now() + notice) + kForgetAfter + absl::Milliseconds(500);
  }

  FaultyTransport::Faults Faults() {
    FaultyTransport::Faults faults;
    faults.read_delay_max = absl::Milliseconds(Below(10));
    faults.shuffle_reads = Below(2) == 0;
    if (Below(2) == 0) faults.corrupt_read = 0.02;
    if (Below(2) == 0) faults.tear_read = 0.1;
    if (Below(3) == 0) faults.drop_note = 0.05;
    return faults;
  }

  CheckedRequest Request(int index, absl::Time arrival) {
    CheckedRequest request;
    request.request_id = absl::StrCat("r", index);
    request.prompt = Prompt();
    request.sampling.max_tokens = 1 + Below(24);
    request.sampling.seed = random_();
    if (Below(2) == 0) request.sampling.temperature = 1.3f;
    if (Below(6) == 0) request.sampling.stop_tokens = Tokens(20);
    if (Below(6) == 0) request.sampling.repetition_penalty = 1.3f;
    if (Below(10) == 0) request.sampling.prompt_logprobs = 0;
    if (Below(2) == 0) request.sampling.logprobs = 0;
    if (Below(5) == 0) request.answers = 2 + Below(2);
    if (Below(5) == 0) request.cache_salt = Below(2) == 0 ? "a" : "b";
    if (Below(12) == 0) request.prefix_cache = false;
    request.mode = static_cast<ServingMode>(Below(4));
    request.arrival = arrival;
    return request;
  }

  // Returns the beginning of a document, or an earlier prompt with its answer, and some new tokens.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt;
    if (!clients_.empty() && Below(3) == 0) {
      const CheckedRequest& turn = clients_[Below(static_cast<int>(clients_.size()))]->request;
      prompt = turn.prompt;
      const std::vector<TokenId> answer = cluster_.Expected(turn);
      prompt.insert(prompt.end(), answer.begin(), answer.end());
    } else {
      const std::vector<TokenId>& document = documents_[Below(3)];
      prompt.assign(document.begin(), document.begin() + Below(static_cast<int>(document.size())));
    }
    const std::vector<TokenId> tail = Tokens(Below(3) == 0 ? 0 : 1 + Below(20));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    if (prompt.empty()) prompt = Tokens(1);
    prompt.resize(std::min<size_t>(prompt.size(), kContext - 30));
    return prompt;
  }

  std::mt19937_64 random_;
  SimCluster cluster_;
  std::vector<std::vector<TokenId>> documents_;
  std::vector<SimClient*> clients_;
  std::vector<int> living_;  // numbers of the workers that run
  int kills_ = 0, broken_rpcs_ = 0;
  // Time at which the routers know of all kills and restarts so far.
  absl::Time settled_at_ = absl::InfinitePast();
};

// BATON_PREFIX_HISTORIES sets the number of histories, and BATON_SIM_SEED the seed of the first.
TEST(PrefixCacheSimTest, AnswersAreThoseWithoutACacheAndEveryBlockComesBack) {
  SetLogLevel(Severity::kError);
  Totals totals;
  const int first = Setting("BATON_SIM_SEED", 1);
  const int histories = Setting("BATON_PREFIX_HISTORIES", Histories(600, 2000));
  for (int seed = first; seed < first + histories; ++seed) {
    SCOPED_TRACE(absl::StrCat("BATON_SIM_SEED=", seed, " BATON_PREFIX_HISTORIES=1"));
    History history(static_cast<uint64_t>(seed));
    history.Run();
    history.Check(&totals);
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << totals.answered << " answered, " << totals.cancelled << " cancelled, "
            << totals.given_up << " given up, " << totals.with_hit << " with a hit, "
            << totals.with_decode_hit << " with a hit at decode, " << totals.cached_tokens
            << " tokens cached, " << totals.data_loss << " found corrupt, " << totals.migrations
            << " migrations, " << totals.kills << " kills that broke " << totals.broken_rpcs
            << " RPCs, " << totals.by_other_routers << " answered by other routers than the first, "
            << totals.steps_ahead << " steps ahead\n";
  if (histories < 1000 || ::testing::Test::HasFailure()) return;
  EXPECT_GT(totals.with_hit, totals.answered / 4);
  EXPECT_GT(totals.with_decode_hit, totals.answered / 10);
  EXPECT_GT(totals.cancelled, 100);
  EXPECT_LT(totals.given_up, totals.answered / 1000);
  EXPECT_GT(totals.data_loss, 10u);
  EXPECT_GT(totals.kills, histories / 4);
  EXPECT_GT(totals.broken_rpcs, histories / 4);
  EXPECT_GT(totals.by_other_routers, totals.answered / 4);
  EXPECT_GT(totals.steps_ahead, static_cast<uint64_t>(totals.answered));
}

}  // namespace
}  // namespace baton
