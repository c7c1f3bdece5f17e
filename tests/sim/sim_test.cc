#include <cstdlib>
#include <iostream>

#include "common/base/histories.h"
#include "common/base/log.h"
#include "common/rpc/retry_after.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_cluster.h"

namespace baton {
namespace {

// Returns the seed in BATON_SIM_SEED, which replays a run, else `otherwise`.
uint64_t Seed(uint64_t otherwise) {
  const char* given = std::getenv("BATON_SIM_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
  std::cout << "seed " << seed << "\n";
  return seed;
}

class SimTest : public ::testing::Test {
 protected:
  SimTest() { SetLogLevel(Severity::kError); }

  // Returns a random length from 1 up to `longest`. Short ones are more frequent, as with real
  // prompts.
  int Length(int longest) {
    return static_cast<int>(std::exp(std::uniform_real_distribution<double>(
        0, std::log(static_cast<double>(longest + 1)))(random_)));
  }
  CheckedRequest Request(absl::Time arrival, int prompt, int max_tokens) {
    CheckedRequest request;
    request.request_id = absl::StrCat("r", ++requests_);
    for (int i = 0; i < prompt; ++i) request.prompt.push_back(random_() % 256);
    request.sampling.max_tokens = max_tokens;
    request.sampling.seed = random_();
    request.arrival = arrival;
    return request;
  }
  CheckedRequest RandomRequest(absl::Time arrival) {
    CheckedRequest request = Request(arrival, Length(300), Length(40));
    if (random_() % 2) request.sampling.temperature = 1.3f;
    if (random_() % 4 == 0) request.sampling.top_p = 0.8f;
    if (random_() % 4 == 0) {
      for (int i = 0; i < 20; ++i) request.sampling.stop_tokens.push_back(random_() % 256);
    }
    if (random_() % 4 == 0) LookBack(&request.sampling);
    if (random_() % 8 == 0) request.answers = 2 + static_cast<int>(random_() % 2);
    if (random_() % 8 == 0) request.sampling.prompt_logprobs = 0;
    // Half of the requests use the router's mode, which is disaggregated by default.
    const uint32_t mode = random_() % 6;
    if (mode < kServingModes) request.mode = static_cast<ServingMode>(mode);
    return request;
  }

  // Sets all options that make a token depend on earlier tokens, and a logit bias. They must have
  // the same effect after a sequence goes back to prefill.
  void LookBack(SamplingOptions* sampling) {
    sampling->repetition_penalty = 1.3f;
    sampling->frequency_penalty = 0.4f;
    sampling->presence_penalty = -0.3f;
    sampling->logit_bias = {{7, 2.5f}, {8, -100}};
    for (int i = 0; i < 200; ++i) {
      sampling->bad_words.push_back({static_cast<TokenId>(random_() % 256)});
      if (i % 2) sampling->bad_words.back().push_back(static_cast<TokenId>(random_() % 256));
    }
  }

  static void ExpectOthers(const SimCluster& cluster, const SimClient& client) {
    ASSERT_EQ(client.others.size(), static_cast<size_t>(client.request.answers - 1));
    for (const auto& [index, tokens] : client.others) {
      CheckedRequest request = client.request;
      request.sampling.answer_index = index;
      EXPECT_EQ(tokens, cluster.Expected(request)) << request.request_id << ", answer " << index;
    }
  }
  static void ExpectScores(const SimCluster& cluster, const SimClient& client) {
    if (!client.request.sampling.prompt_logprobs) {
      EXPECT_TRUE(client.scores.empty());
      return;
    }
    ASSERT_EQ(client.scores.size(), client.request.prompt.size());
    const std::vector<float> expected = cluster.ExpectedScores(client.request);
    EXPECT_FALSE(client.scores[0].has_logprob());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(client.scores[i + 1].logprob(), expected[i]) << client.request.request_id;
    }
  }

  std::mt19937_64 random_;
  int requests_ = 0;
};

TEST_F(SimTest, ThousandsOfRequestsWithCancelsAndDeadlinesGetTheirTokensAndLeaveNothing) {
  const uint64_t seed = Seed(20261121);
  random_.seed(seed);
  SimCluster cluster({.seed = seed,
                      .decode_blocks = 72,
                      .prefill = {.chunk_tokens = 64, .slice_bytes = 4096},
                      .decode = {.max_batch = 24, .max_sequences = 32}});
  const int requests = Histories(3000, 10000);
  std::vector<SimClient*> clients;
  absl::Time arrival = cluster.now();
  for (int i = 0; i < requests; ++i) {
    arrival += absl::Microseconds(random_() % 2400);
    CheckedRequest request = RandomRequest(arrival);
    if (random_() % 10 == 0) {
      request.deadline = arrival + absl::Milliseconds(random_() % 200);
    }
    clients.push_back(cluster.Add(std::move(request)));
    if (random_() % 10 == 0) {
      clients.back()->cancel_at = arrival + absl::Milliseconds(random_() % 120 + 1);
    }
    if (clients.size() % 500 == 0) cluster.RunUntil(arrival);
  }
  cluster.RunUntilIdle(absl::Minutes(10));
  int answered = 0, cancelled = 0, expired = 0, refused = 0;
  for (const SimClient* client : clients) {
    ASSERT_TRUE(client->status);
    const auto expected = cluster.Expected(client->request);
    const std::string& id = client->request.request_id;
    if (client->status->ok()) {
      EXPECT_EQ(client->tokens, expected) << id;
      EXPECT_TRUE(client->finished) << id;
      ExpectOthers(cluster, *client);
      ExpectScores(cluster, *client);
      ++answered;
      continue;
    }
    ASSERT_LE(client->tokens.size(), expected.size()) << id;
    EXPECT_TRUE(std::equal(client->tokens.begin(), client->tokens.end(), expected.begin())) << id;
    if (absl::IsCancelled(*client->status) && client->cancelled) {
      ++cancelled;
    } else if (absl::IsDeadlineExceeded(*client->status)) {
      EXPECT_LT(client->request.deadline, absl::InfiniteFuture()) << id;
      ++expired;
    } else if (absl::IsResourceExhausted(*client->status) && RetryAfter(*client->status)) {
      // The workers are never so busy that a request without a deadline is refused.
      EXPECT_LT(client->request.deadline, absl::InfiniteFuture()) << id;
      EXPECT_TRUE(client->tokens.empty()) << id;
      ++refused;
    } else {
      ADD_FAILURE() << id << ": " << *client->status;
    }
  }
  cluster.ExpectAllBack();
  const RouterCounters& counters = cluster.router().counters();
  std::cout << answered << " answered, " << cancelled << " cancelled, " << expired << " expired, "
            << refused << " refused, " << counters.migrations << " migrations, "
            << counters.colocated << " colocated, " << counters.decode_refused
            << " refused by decode, " << cluster.steps() << " steps\n";
  EXPECT_EQ(counters.data_loss, 0u);
  EXPECT_GT(counters.colocated, requests / 10u);
  EXPECT_EQ(counters.diverged, 0u);
  EXPECT_GT(answered, requests * 7 / 10);
  EXPECT_GT(cancelled, requests / 50);
  EXPECT_GT(expired, requests / 200);
  EXPECT_GT(counters.migrations, 0u);  // preempted sequences came back
}

// Each client belongs to one of three routers. Each router learns from the workers how busy they
// are and what they have cached, and never from another router.
TEST_F(SimTest, ThreeRoutersShareTheWorkersAndEachAnswersItsClients) {
  const uint64_t seed = Seed(33);
  random_.seed(seed);
  SimCluster cluster({.seed = seed,
                      .routers = 3,
                      .decode_blocks = 72,
                      .prefill = {.chunk_tokens = 64, .slice_bytes = 4096},
                      .decode = {.max_batch = 24, .max_sequences = 32},
                      .adjust_router = [](RouterCoreOptions* router) {
                        router->policy = RoutingPolicyKind::kPrefix;
                      }});
  std::vector<SimClient*> clients;
  absl::Time arrival = cluster.now();
  for (int i = 0; i < 3000; ++i) {
    arrival += absl::Microseconds(random_() % 3000);
    CheckedRequest request = RandomRequest(arrival);
    // A third of the prompts begin like an earlier prompt, which another router may have sent.
    if (i > 0 && random_() % 3 == 0) {
      const std::vector<TokenId>& shared = clients[random_() % clients.size()]->request.prompt;
      request.prompt.insert(request.prompt.begin(), shared.begin(), shared.end());
      request.prompt.resize(std::min<size_t>(request.prompt.size(), 300));
    }
    clients.push_back(cluster.Add(std::move(request), static_cast<int>(random_() % 3)));
    if (random_() % 10 == 0) {
      clients.back()->cancel_at = arrival + absl::Milliseconds(random_() % 120 + 1);
    }
    if (clients.size() % 500 == 0) cluster.RunUntil(arrival);
  }
  cluster.RunUntilIdle(absl::Minutes(10));
  int with_hit[3] = {};
  for (const SimClient* client : clients) {
    const std::string& id = client->request.request_id;
    ASSERT_TRUE(client->status) << id;
    if (!client->status->ok()) {
      EXPECT_TRUE(client->cancelled) << id << ": " << *client->status;
      continue;
    }
    EXPECT_EQ(client->tokens, cluster.Expected(client->request)) << id;
    ExpectOthers(cluster, *client);
    ExpectScores(cluster, *client);
    with_hit[client->router] += client->summary->usage.cached_tokens > 0;
  }
  cluster.ExpectAllBack();
  for (size_t i = 0; i < clients.size(); i += 10) cluster.ExpectRoutersKnow(clients[i]->request);
  for (int router = 0; router < cluster.routers(); ++router) {
    const RouterCounters& counters = cluster.router(router).counters();
    EXPECT_EQ(counters.diverged, 0u);
    EXPECT_EQ(counters.data_loss, 0u);
    EXPECT_GT(counters.finished_ok, 700u);
    EXPECT_GT(with_hit[router], 50);
  }
}

// Workers are killed one after the other under load, and come back at their address as processes
// with empty caches. Routers learn of the end of the old process up to 300 ms after the kill, often
// later than of the new one. No request may fail.
TEST_F(SimTest, RequestsOfKilledWorkersAreAnsweredByOthers) {
  const uint64_t seed = Seed(35);
  random_.seed(seed);
  SimCluster cluster({.seed = seed,
                      .routers = 2,
                      .prefill_workers = 2,
                      .decode_workers = 2,
                      .prefill = {.chunk_tokens = 64, .slice_bytes = 4096},
                      .decode = {.max_batch = 24, .max_sequences = 32}});
  std::vector<int> workers = {0, 1, 2, 3};
  std::vector<SimClient*> clients;
  absl::Time arrival = cluster.now();
  int broken = 0;
  for (int kill = 0; kill < 20; ++kill) {
    for (int i = 0; i < 50; ++i) {
      arrival += absl::Microseconds(random_() % 8000);
      clients.push_back(cluster.Add(RandomRequest(arrival), static_cast<int>(random_() % 2)));
    }
    cluster.RunUntil(arrival);
    int& worker = workers[static_cast<size_t>(kill) % workers.size()];
    broken += cluster.Kill(worker, absl::Milliseconds(300));
    arrival += absl::Milliseconds(random_() % 100);
    cluster.RunUntil(arrival);
    worker = cluster.Restart(worker, /*same_address=*/true);
  }
  cluster.RunUntilIdle(absl::Minutes(10));
  for (const SimClient* client : clients) {
    const std::string& id = client->request.request_id;
    ASSERT_TRUE(client->status) << id;
    EXPECT_TRUE(client->status->ok()) << id << ": " << *client->status;
    EXPECT_EQ(client->tokens, cluster.Expected(client->request)) << id;
    ExpectOthers(cluster, *client);
    ExpectScores(cluster, *client);
  }
  cluster.ExpectAllBack();
  uint64_t migrations = 0;
  for (int router = 0; router < cluster.routers(); ++router) {
    EXPECT_EQ(cluster.router(router).counters().diverged, 0u);
    migrations += cluster.router(router).counters().migrations;
  }
  std::cout << broken << " RPCs broke, " << migrations << " migrations\n";
  EXPECT_GT(broken, 40);
  EXPECT_GT(migrations, 20u);
}

// Reads of KV arrive late, requests are cancelled in the middle of a read, and the block that was
// freed last is reused first.
TEST_F(SimTest, CancelDuringAPullNeverCorruptsTheNextOwnerOfItsBlocks) {
  const uint64_t seed = Seed(7);
  random_.seed(seed);
  SimCluster cluster({.seed = seed,
                      .prefill_workers = 2,
                      .decode_workers = 2,
                      .prefill = {.chunk_tokens = 32, .slice_bytes = 1, .reuse_last_freed = true},
                      .decode = {.max_batch = 16, .max_sequences = 16, .reuse_last_freed = true}});
  cluster.SetFaults({.read_delay_max = absl::Milliseconds(40), .shuffle_reads = true});
  std::vector<SimClient*> clients;
  absl::Time arrival = cluster.now();
  for (int i = 0; i < 1000; ++i) {
    arrival += absl::Microseconds(random_() % 12000);
    clients.push_back(cluster.Add(Request(arrival, Length(200), Length(12))));
    if (random_() % 2 == 0) {
      clients.back()->cancel_at = arrival + absl::Milliseconds(random_() % 60 + 1);
    }
  }
  cluster.RunUntilIdle(absl::Minutes(10));
  int cancelled = 0;
  for (const SimClient* client : clients) {
    const auto expected = cluster.Expected(client->request);
    ASSERT_LE(client->tokens.size(), expected.size());
    EXPECT_TRUE(std::equal(client->tokens.begin(), client->tokens.end(), expected.begin()));
    EXPECT_TRUE(client->status->ok() || absl::IsCancelled(*client->status)) << *client->status;
    if (client->status->ok()) {
      EXPECT_EQ(client->tokens, expected);
    }
    cancelled += absl::IsCancelled(*client->status);
  }
  EXPECT_GT(cancelled, 200);
  EXPECT_EQ(cluster.router().counters().data_loss, 0u);
  cluster.ExpectAllBack();
}

// Answers grow beyond the end of their rotary table while requests are cancelled or preempted. The
// KV of such an answer is then computed again with the table for longer sequences. Checks that:
// - no KV comes from a wrong table, which the fake backend's tokens would show;
// - penalties count each token once;
// - the two answers to one prompt change their tables independently of each other;
// - the logprobs of a prompt come from the table for the length of the prompt.
TEST_F(SimTest, SequencesThatOutgrowTheirRotaryTableGoOnWithTheTokensOfTheNext) {
  const uint64_t seed = Seed(41);
  random_.seed(seed);
  SimCluster cluster({.seed = seed,
                      .prefill_workers = 2,
                      .decode_workers = 2,
                      .context = 200,
                      .decode_blocks = 32,
                      .prefill = {.chunk_tokens = 32, .slice_bytes = 4096},
                      .decode = {.max_batch = 24, .max_sequences = 32},
                      .long_rope_from = 48});
  std::vector<SimClient*> clients;
  absl::Time arrival = cluster.now();
  int crossing = 0;
  for (int i = 0; i < 1500; ++i) {
    arrival += absl::Microseconds(random_() % 8000);
    CheckedRequest request = Request(arrival, Length(90), Length(60));
    if (random_() % 2) request.sampling.temperature = 1.3f;
    if (random_() % 3 == 0) LookBack(&request.sampling);
    if (random_() % 4 == 0) request.answers = 2;
    if (random_() % 4 == 0) request.sampling.prompt_logprobs = 0;
    const size_t prompt = request.prompt.size(), tokens = prompt + cluster.Expected(request).size();
    clients.push_back(cluster.Add(std::move(request)));
    if (random_() % 10 == 0) {
      clients.back()->cancel_at = arrival + absl::Milliseconds(random_() % 120 + 1);
    } else {
      // The rotary table changes after 48 positions. The KV of the last token is never computed, so
      // a sequence needs the next table only if it has more than 49 tokens.
      crossing += prompt <= 48 && tokens > 49;
    }
  }
  cluster.RunUntilIdle(absl::Minutes(10));
  for (const SimClient* client : clients) {
    if (client->status->ok()) {
      EXPECT_EQ(client->tokens, cluster.Expected(client->request)) << client->request.request_id;
      ExpectOthers(cluster, *client);
      ExpectScores(cluster, *client);
    } else {
      EXPECT_TRUE(client->cancelled) << *client->status;
    }
  }
  const RouterCounters& counters = cluster.router().counters();
  std::cout << crossing << " crossed and ended, " << counters.outgrown << " outgrown, "
            << counters.migrations << " migrations\n";
  EXPECT_GT(crossing, 100);
  EXPECT_GE(counters.outgrown, static_cast<uint64_t>(crossing));
  EXPECT_GT(counters.migrations, 0u);  // preempted sequences came back
  EXPECT_EQ(counters.data_loss, 0u);
  EXPECT_EQ(counters.diverged, 0u);
  cluster.ExpectAllBack();
}

// Workers of one model are replaced by workers of another model, one of each role every three
// seconds, while requests for one or four answers keep coming. All answers of a request must come
// from one model. No request may fail, and the router must change its model once.
class RolloutTest : public SimTest, public ::testing::WithParamInterface<ServingMode> {};

TEST_P(RolloutTest, EveryRequestIsAnsweredByOneModel) {
  constexpr int kOfEachRole = 3;
  const uint64_t seed = Seed(18);
  random_.seed(seed);
  SimCluster cluster({.seed = seed,
                      .prefill_workers = kOfEachRole,
                      .decode_workers = kOfEachRole,
                      .decode_blocks = 72,
                      .prefill = {.chunk_tokens = 64, .slice_bytes = 4096},
                      .decode = {.max_batch = 24, .max_sequences = 32},
                      .mode = GetParam()});
  std::vector<SimClient*> clients;
  absl::Time arrival = cluster.now();
  const auto ask_until = [&](absl::Time end) {
    for (; arrival < end; arrival += absl::Milliseconds(random_() % 60)) {
      CheckedRequest request = Request(arrival, Length(150), Length(30));
      request.answers = random_() % 2 ? 4 : 1;
      if (random_() % 2) request.sampling.temperature = 1.3f;
      clients.push_back(cluster.Add(std::move(request)));
    }
    cluster.RunUntil(end);
  };
  ask_until(arrival + absl::Seconds(2));
  for (int i = 0; i < kOfEachRole; ++i) {
    cluster.AddWorker(v1::WORKER_ROLE_PREFILL, 1);
    cluster.AddWorker(v1::WORKER_ROLE_DECODE, 1);
    ask_until(arrival + absl::Seconds(2));
    if (i + 1 == kOfEachRole) break;
    cluster.Drain(i);
    cluster.Drain(kOfEachRole + i);
    ask_until(arrival + absl::Seconds(1));
  }
  // The last workers of the old model leave once the router serves the new one.
  ask_until(arrival + absl::Seconds(9));
  cluster.Drain(kOfEachRole - 1);
  cluster.Drain(2 * kOfEachRole - 1);
  ask_until(arrival + absl::Seconds(2));
  cluster.RunUntilIdle(absl::Minutes(1));

  int of_model[2] = {}, several = 0;
  for (const SimClient* client : clients) {
    const std::string& id = client->request.request_id;
    ASSERT_TRUE(client->status) << id;
    EXPECT_TRUE(client->status->ok()) << id << ": " << *client->status;
    const int model = cluster.ModelOf(client->request);
    EXPECT_EQ(client->tokens, cluster.Expected(client->request, model)) << id;
    ASSERT_EQ(client->others.size(), static_cast<size_t>(client->request.answers - 1)) << id;
    for (const auto& [index, tokens] : client->others) {
      CheckedRequest one = client->request;
      one.sampling.answer_index = index;
      EXPECT_EQ(tokens, cluster.Expected(one, model)) << id << ", answer " << index;
    }
    ++of_model[model];
    several += client->request.answers > 1;
  }
  std::cout << of_model[0] << " and " << of_model[1] << " answered by the two models, " << several
            << " with four answers\n";
  EXPECT_GT(of_model[0], 100);
  EXPECT_GT(of_model[1], 50);
  EXPECT_EQ(cluster.router().counters().identity_changes, 1u);
  EXPECT_EQ(cluster.router().counters().data_loss, 0u);
  cluster.ExpectAllBack();
}

INSTANTIATE_TEST_SUITE_P(Modes, RolloutTest,
                         ::testing::Values(ServingMode::kDisaggregated, ServingMode::kColocated,
                                           ServingMode::kAuto),
                         [](const auto& info) { return std::string(ServingModeName(info.param)); });

TEST_F(SimTest, ASlowTransportDelaysTheSecondTokenAndNotTheFirst) {
  std::vector<absl::Duration> first, second;
  for (const absl::Duration delay : {absl::ZeroDuration(), absl::Seconds(1)}) {
    random_.seed(3);
    SimCluster cluster(
        {.seed = 3, .prefill_workers = 1, .decode_workers = 1, .wire_delay = absl::ZeroDuration()});
    cluster.SetFaults({.read_delay_min = delay, .read_delay_max = delay});
    SimClient* client = cluster.Add(Request(cluster.now(), 100, 10));
    cluster.RunUntilIdle(absl::Minutes(1));
    ASSERT_TRUE(client->status->ok()) << *client->status;
    EXPECT_EQ(client->tokens, cluster.Expected(client->request));
    first.push_back(client->times[0] - client->request.arrival);
    second.push_back(client->times[1] - client->request.arrival);
    cluster.ExpectAllBack();
  }
  EXPECT_LT(first[0], absl::Milliseconds(20));
  EXPECT_EQ(first[1], first[0]);
  EXPECT_LT(second[0], absl::Milliseconds(30));
  EXPECT_GT(second[1] - second[0], absl::Milliseconds(990));
}

TEST_F(SimTest, TheSameSeedGivesTheSameHistory) {
  std::vector<std::vector<absl::Time>> histories;
  for (int run = 0; run < 2; ++run) {
    random_.seed(9);
    requests_ = 0;
    SimCluster cluster({.seed = 9, .prefill_workers = 2, .decode_workers = 2});
    std::vector<SimClient*> clients;
    for (int i = 0; i < 50; ++i) {
      clients.push_back(
          cluster.Add(RandomRequest(cluster.now() + absl::Microseconds(random_() % 100000))));
    }
    cluster.RunUntilIdle(absl::Minutes(1));
    histories.emplace_back();
    for (const SimClient* client : clients) {
      for (const absl::Time time : client->times) histories.back().push_back(time);
    }
  }
  EXPECT_EQ(histories[0], histories[1]);
}

// Plays a short history of a cluster. The seed chooses the cluster's size, mode, faults and
// clients. A history has cancels, deadlines, latency targets, slow clients, a queue that overflows,
// reads that come late, fail or arrive wrong, preemption, sequences that outgrow their rotary
// table, and a change of workers.
class EventLogTest : public SimTest {
 protected:
  void Play(uint64_t seed, EventLog* log) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    random_.seed(seed);
    requests_ = 0;
    const auto sample = [this](int from, int to) {
      return from + static_cast<int>(random_() % static_cast<uint64_t>(to - from + 1));
    };
    SimCluster::Options options{
        .seed = seed,
        .prefill_workers = sample(1, 3),
        .decode_workers = sample(1, 3),
        .decode_blocks = sample(64, 96),
        .prefill = {.max_queue = sample(2, 64), .chunk_tokens = 64, .slice_bytes = 4096},
        .decode = {.max_batch = sample(4, 24), .max_sequences = sample(2, 32)},
        .long_rope_from = sample(0, 2) == 0 ? 48 : 0,
        .mode = static_cast<ServingMode>(sample(1, 3)),
        .log = log};
    const bool slow = sample(0, 1) == 0, full = sample(0, 3) == 0, faulty = sample(0, 1) == 0;
    options.adjust_router = [slow, full](RouterCoreOptions* router) {
      if (slow) router->client_buffer_tokens = 4;
      if (slow) router->slow_client_limit = absl::Milliseconds(200);
      if (full) router->max_queued = 24;
      router->pair_wait = router->room_wait = absl::Seconds(4);
    };
    SimCluster cluster(options);
    if (faulty) {
      cluster.SetFaults({.read_delay_max = absl::Milliseconds(sample(0, 20)),
                         .fail_read = sample(0, 10) * 0.001,
                         .corrupt_read = sample(0, 10) * 0.001,
                         .shuffle_reads = true});
    }
    std::vector<SimClient*> clients;
    absl::Time arrival = cluster.now();
    const int changes_at = sample(0, 3) == 0 ? sample(10, 80) : -1;
    for (int i = 0; i < 100; ++i) {
      arrival += absl::Microseconds(sample(0, 5000));
      CheckedRequest request = RandomRequest(arrival);
      if (sample(0, 9) == 0) request.deadline = arrival + absl::Milliseconds(sample(0, 200));
      if (sample(0, 3) == 0) {
        request.slo = {absl::Milliseconds(sample(1, 50)), absl::Milliseconds(sample(1, 10))};
      }
      clients.push_back(cluster.Add(std::move(request)));
      if (sample(0, 9) == 0)
        clients.back()->cancel_at = arrival + absl::Milliseconds(sample(1, 120));
      if (slow && sample(0, 3) == 0) clients.back()->takes = absl::Milliseconds(sample(1, 500));
      if (i != changes_at) continue;
      cluster.RunUntil(arrival);
      const int model = options.long_rope_from > 0 ? 0 : sample(0, 1);
      cluster.AddWorker(v1::WORKER_ROLE_PREFILL, model);
      cluster.AddWorker(v1::WORKER_ROLE_DECODE, model);
      cluster.Drain(0);
      cluster.Drain(options.prefill_workers);
    }
    cluster.RunUntilIdle(absl::Minutes(10));
    for (const SimClient* client : clients) {
      ASSERT_TRUE(client->status) << client->request.request_id;
      answered_ += client->status->ok();
      if (client->tokens.empty()) continue;
      const auto expected = cluster.Expected(client->request, cluster.ModelOf(client->request));
      ASSERT_LE(client->tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(client->tokens.begin(), client->tokens.end(), expected.begin()));
      if (client->status->ok()) {
        EXPECT_EQ(client->tokens.size(), expected.size());
      }
    }
    cluster.ExpectAllBack();
  }
  std::string Hash(int seeds) {
    return HashLogs("sim", seeds, [this](uint64_t seed, EventLog* log) { Play(seed, log); });
  }

  int answered_ = 0;
};

// BATON_LOG_SEEDS=1000 prints a hash over the logs of 1,000 seeds, to compare two versions.
TEST_F(EventLogTest, TheSameSeedGivesTheSameLog) {
  const std::string first = Hash(3);
  EXPECT_EQ(Hash(3), first);
  EXPECT_GT(answered_, 200);
  if (const int seeds = LogSeedsWanted(); seeds > 0) std::cout << Hash(seeds) << "\n";
}

}  // namespace
}  // namespace baton
