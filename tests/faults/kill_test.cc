// Kills real processes, one after another, under steady load over UCX. Workers are killed, or
// stopped for longer than their lease, and routers are killed. Every request finishes with the same
// tokens as without kills, except for requests that a router's death cut off. Workers find prompts
// in their prefix caches: half of the clients hold conversations, and prompts begin with the same
// documents.
//
// BATON_KILLS sets the number of kills (default 12; `./baton soak` uses 200), BATON_SEED the seed.
// If BATON_KILL_BACKEND is set, one more test runs on that backend, and its answers are compared
// with those of the CPU backend; use cuda on a machine with a GPU. BATON_PROGRAMS and BATON_MODELS
// name the folders of the programs and of the small models, for a machine without the build's own
// folders.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/scratch_folder.h"
#include "common/rpc/serving_mode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/scrape.h"
#include "tests/cluster/truth.h"
#include "tests/e2e/served_folder.h"
#include "tests/faults/cases.h"
#include "tests/faults/cpu_judge.h"
#include "tests/faults/load.h"
#include "tests/faults/memory_watch.h"
#include "tests/numerics/long_model.h"

namespace baton {
namespace {

constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";
constexpr int kRouterEvery = 20;  // Every 20th kill hits the router.
constexpr int kStopEvery = 14;    // Every 14th kill only stops a worker.
constexpr int kWarmUp = 8;        // Number of answers of a process before its memory is compared.
constexpr int kCalm = 8;          // Number of answers of every worker after the last kill.
constexpr int64_t kMiB = 1 << 20;
// About 1,000 KV blocks of the larger models, so that their workers evict cached prefixes.
constexpr int64_t kPoolBytes = 24 * kMiB;
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kMaxGrowth = 512 * kMiB;  // AddressSanitizer keeps freed memory in quarantine.
#else
constexpr int64_t kMaxGrowth = 8 * kMiB;
#endif
// Max shared memory of a worker. It maps its own pool and the pools of its two peers; the
// additional 64 MiB are for UCX's queues.
constexpr int64_t kMaxShared = 3 * kPoolBytes + 64 * kMiB;

int FromEnvironment(const char* name, int fallback) {
  const char* text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : fallback;
}

// Returns, for each phase, the number of requests that lost a worker in that phase, as the router's
// log reports them.
std::map<std::string, int> LostByPhase(const std::string& router_log) {
  std::map<std::string, int> counts;
  std::ifstream file(router_log);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StrContains(line, " back_to_prefill ")) continue;
    const size_t at = line.find(" phase=");
    if (at == line.npos) continue;
    ++counts[std::string(absl::string_view(line).substr(at + 7, line.find(' ', at + 7) - at - 7))];
  }
  return counts;
}

// Reads the metrics of `process` until `reached` holds for them, at most for kPatience. Returns
// what was read last.
absl::StatusOr<Exposition> AwaitPage(const Process& process,
                                     const std::function<bool(const Exposition&)>& reached) {
  const absl::Time until = absl::Now() + kPatience;
  while (true) {
    absl::StatusOr<Exposition> page = Scrape(process);
    if (!page.ok() || reached(*page) || absl::Now() >= until) return page;
  }
}

int Lost(const std::string& router_log) {
  int lost = 0;
  for (const auto& [phase, count] : LostByPhase(router_log)) lost += count;
  return lost;
}

class KillTest : public testing::Test {
 protected:
  KillTest() { setenv("UCX_POSIX_DIR", shared_.path().c_str(), 1); }
  // Runs at least `kills` kills under load, with prompts of up to `longest` tokens. `share` is as
  // in ExpectHits(), and `mode` is the router's --mode.
  void RunStorm(const std::string& model, const Workers& workers, int longest, double share,
                int kills, v1::ServingMode mode = v1::SERVING_MODE_DISAGGREGATED);

  // Samples the memory of every process that runs now. `router_answers` is the number of answers
  // that the current router process has given.
  void SampleMemory(int router_answers) {
    for (int i = 0; i < 2; ++i) {
      memory_.Sample("prefill", cluster_->prefill(i).pid(),
                     seen_.answers(cluster_->prefill_address(i)));
      memory_.Sample("decode", cluster_->decode(i).pid(),
                     seen_.answers(cluster_->decode_address(i)));
    }
    memory_.Sample("router", cluster_->router().pid(), router_answers);
  }
  void ExpectFlatMemory() {
    for (const std::string role : {"router", "prefill", "decode"}) {
      const MemoryWatch::Growth growth = memory_.Of(role);
      std::printf(
          "memory of %d %s processes after %d answers: grew by at most %.1f MiB, to at most %.1f "
          "MiB; shared with others at most %.1f MiB\n",
          growth.processes, role.c_str(), kWarmUp, growth.own_bytes * 1.0 / kMiB,
          growth.max_own_bytes * 1.0 / kMiB, growth.max_shared_bytes * 1.0 / kMiB);
      EXPECT_GE(growth.processes, 1) << role;
      EXPECT_LE(growth.own_bytes, kMaxGrowth) << role;
      EXPECT_LE(growth.max_shared_bytes, kMaxShared) << role;
    }
  }

  // Expects that later turns found at least this share of their prompts in the caches of both
  // workers, and more than nothing.
  void ExpectHits(const std::map<std::string, Found>& found, double share) {
    for (const auto& [kind, f] : found) {
      std::printf(
          "%d %s: of %lld prompt tokens, %lld were cached where the prompt was computed, and %lld "
          "at the decode worker\n",
          f.requests, kind.c_str(), static_cast<long long>(f.prompt_tokens),
          static_cast<long long>(f.cached_tokens), static_cast<long long>(f.decode_cached_tokens));
    }
    const auto later = found.find(kLaterTurns);
    ASSERT_NE(later, found.end());
    const double wanted = share * static_cast<double>(later->second.prompt_tokens);
    EXPECT_GT(later->second.cached_tokens, 0);
    EXPECT_GT(later->second.decode_cached_tokens, 0);
    EXPECT_GE(later->second.cached_tokens, wanted);
    EXPECT_GE(later->second.decode_cached_tokens, wanted);
  }
  // Checks an idle cluster by its metrics. Workers use no KV block; blocks that only the prefix
  // cache keeps count as free. The router's index has the blocks that workers keep, and no others.
  void ExpectNothingHeld() {
    double kept = 0, max_kept = 0;
    for (int i = 0; i < 2; ++i) {
      for (const std::string role : {"prefill", "decode"}) {
        const std::string prefix = absl::StrCat("baton_", role, "_");
        const Process& worker = role == "prefill" ? cluster_->prefill(i) : cluster_->decode(i);
        const auto page = AwaitPage(worker, [&](const Exposition& p) {
          return p.Sum(prefix + "kv_blocks_used") == 0 && p.Sum(prefix + "requests_running") == 0;
        });
        ASSERT_TRUE(page.ok()) << page.status();
        EXPECT_EQ(page->Sum(prefix + "kv_blocks_used"), 0) << role << i;
        EXPECT_EQ(page->Sum(prefix + "requests_running"), 0) << role << i;
        EXPECT_EQ(page->Sum(prefix + "requests_waiting"), 0) << role << i;
        const double cached = page->Sum(prefix + "kv_blocks_cached");
        EXPECT_LE(cached, page->Sum(prefix + "kv_blocks")) << role << i;
        std::printf("%s%d keeps %.0f of %.0f KV blocks, and has evicted %.0f\n", role.c_str(), i,
                    cached, page->Sum(prefix + "kv_blocks"),
                    page->Sum(prefix + "evicted_blocks_total"));
        kept += cached;
        max_kept = std::max(max_kept, cached);
      }
    }
    EXPECT_GT(kept, 0);
    const std::string names = "baton_router_prefix_index_names";
    const auto page = AwaitPage(cluster_->router(), [&](const Exposition& p) {
      return p.Sum(names) >= max_kept && p.Sum(names) <= kept;
    });
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_GE(page->Sum(names), max_kept);
    EXPECT_LE(page->Sum(names), kept);
    EXPECT_EQ(page->Sum("baton_router_requests_running"), 0);
    EXPECT_EQ(page->Sum("baton_router_requests_waiting"), 0);
    std::printf("the router's index has %.0f KV blocks; the workers keep %.0f in all\n",
                page->Sum(names), kept);
  }

  // UCX makes its files for shared memory in here, and not in /dev/shm, where other tests may leave
  // files for a moment when they kill a process, too.
  const ScratchFolder shared_{"/dev/shm"};
  std::unique_ptr<Cluster> cluster_;
  Seen seen_;
  MemoryWatch memory_{kWarmUp};
};

void KillTest::RunStorm(const std::string& model, const Workers& workers, int longest, double share,
                        int kills, v1::ServingMode mode) {
  const int seed = FromEnvironment("BATON_SEED", 20261121);
  std::printf("seed %d, %d kills\n", seed, kills);
  std::mt19937 random(seed);
  const Cases cases = MakeCases(model, workers, longest, kills < 30 ? 6 : 12, random);

  // These limits make a stopped worker count as dead after 2.5 s. By then, the router has received
  // no load report for 2.5 s, and nothing on the streams of the worker's requests for 2 s. Leases
  // of the worker's KV, and leases that the worker had to renew, last 2 s and have ended, too.
  const std::string pool = absl::StrCat("--kv-bytes=", kPoolBytes);
  const std::string backend = absl::StrCat("--backend=", workers.backend);
  const std::string metrics = "--metrics-listen=127.0.0.1:0";
  const char* const programs = std::getenv("BATON_PROGRAMS");
  auto started =
      Cluster::Start({.model = model,
                      .programs = programs != nullptr ? programs : "",
                      .test_workers = absl::string_view(workers.backend) == "cuda-emulated",
                      .prefill = 2,
                      .decode = 2,
                      .router_flags = {"--report-limit=2500ms", "--stall=2s", metrics,
                                       absl::StrCat("--mode=", ServingModeName(mode))},
                      .prefill_flags = {backend, pool, "--report-interval=200ms",
                                        "--chunk-tokens=128", "--lease=2s", metrics},
                      .decode_flags = {backend, pool, "--report-interval=200ms", "--max-batch=16",
                                       "--stall=2s", metrics},
                      .http = true});
  ASSERT_TRUE(started.ok()) << started.status();
  cluster_ = *std::move(started);
  Cluster& cluster = *cluster_;
  Load load(cluster, cases, seen_);
  // True if memory growth is checked. A storm of few kills is too short for this. On a GPU
  // (BATON_KILL_BACKEND), the driver allocates memory, too.
  const bool watched = workers.judge == nullptr && kills >= 12;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(seen_.AwaitAnswers(cluster.prefill_address(i), watched ? kWarmUp : 1));
    ASSERT_TRUE(seen_.AwaitAnswers(cluster.decode_address(i), watched ? kWarmUp : 1));
  }
  SampleMemory(seen_.all_answers());
  const SharedMemory warm = SharedMemoryOf(cluster.pids(), shared_.path());
  int killed = 0, stopped = 0, routers = 0;
  int hit = 0;  // Number of kills and stops after which some request had lost its worker.
  int answers_before_router = 0;
  const std::string router_log = cluster.folder() + "/router.log";
  int lost_before = 0;
  // If all kills so far hit workers without requests, more kills follow, until one of them costs a
  // request its worker.
  const auto enough = [&](int k) { return k >= kills && (hit > 0 || k >= 8 * kills); };
  for (int k = 0; !enough(k) && !testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE(absl::StrCat("kill ", k));
    // The seed chooses the moment of the kill, as a number of tokens that the clients receive
    // before it.
    ASSERT_TRUE(seen_.AwaitTokens(std::uniform_int_distribution<int>(1, 400)(random)));
    const int i = std::uniform_int_distribution<int>(0, 1)(random);
    if (k % kRouterEvery == kRouterEvery / 2) {
      load.RouterDies();
      cluster.router().Signal(SIGKILL);
      ASSERT_TRUE(cluster.router().Wait(absl::Seconds(10)).ok());
      ASSERT_TRUE(cluster.RestartRouter().ok());
      ++routers;
      ASSERT_TRUE(cluster.WaitReady(2, 2, kPatience).ok());
      answers_before_router = seen_.all_answers();
      load.RouterIsBack();
    } else {
      const bool prefill = std::uniform_int_distribution<int>(0, 1)(random) == 0;
      Process& victim = prefill ? cluster.prefill(i) : cluster.decode(i);
      if (k % kStopEvery == kStopEvery / 2) {
        victim.Signal(SIGSTOP);
        ++stopped;
        ASSERT_TRUE(cluster.WaitNotReady(2, 2, kPatience).ok());
        victim.Signal(SIGCONT);
      } else {
        victim.Signal(SIGKILL);
        ++killed;
        ASSERT_TRUE(victim.Wait(absl::Seconds(10)).ok());
        ASSERT_TRUE((prefill ? cluster.RestartPrefill(i) : cluster.RestartDecode(i)).ok());
      }
      ASSERT_TRUE(cluster.WaitReady(2, 2, kPatience).ok());
      const std::string& address = prefill ? cluster.prefill_address(i) : cluster.decode_address(i);
      EXPECT_TRUE(seen_.AwaitAnswers(address, 1)) << address << " is back and is not used";
    }
    hit += Lost(router_log) > lost_before;
    lost_before = Lost(router_log);
    SampleMemory(seen_.all_answers() - answers_before_router);
  }
  // Kills nothing more, but watches the memory of the last processes for a while.
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(seen_.AwaitAnswers(cluster.prefill_address(i), watched ? kCalm : 4));
    EXPECT_TRUE(seen_.AwaitAnswers(cluster.decode_address(i), watched ? kCalm : 4));
    SampleMemory(seen_.all_answers() - answers_before_router);
  }
  const SharedMemory after = SharedMemoryOf(cluster.pids(), shared_.path());
  load.Stop();
  const Tally& tally = load.tally;
  std::printf(
      "mode %s; kills %d, stops %d, router kills %d; requests: %d right, %d of them by HTTP, %d "
      "migrated, %d told Unavailable by a router's death, %d failed, %d wrong\n",
      std::string(ServingModeName(mode)).c_str(), killed, stopped, routers, tally.right.load(),
      tally.right_by_http.load(), tally.migrated.load(), tally.cut_off.load(), tally.failed.load(),
      tally.wrong.load());
  EXPECT_GT(tally.right_by_http, 0);
  const std::map<std::string, int> phases = LostByPhase(router_log);
  for (const auto& [phase, count] : phases) {
    std::printf("requests that lost a worker while in %s: %d\n", phase.c_str(), count);
  }
  std::printf("kills and stops that cost some request its worker: %d\n", hit);
  EXPECT_GE(hit, std::max(1, kills * 30 / 200));
  if (kills >= 200) {
    EXPECT_EQ(phases.size(), 4u) << "queue, prefill, pull and decode";
  }
  if (watched) ExpectFlatMemory();
  std::printf("shared memory: %d segments of %.1f MiB warm, %d of %.1f MiB at the end\n",
              warm.segments, warm.segment_bytes * 1.0 / kMiB, after.segments,
              after.segment_bytes * 1.0 / kMiB);
  if (watched) {
    EXPECT_LE(after.segment_bytes, warm.segment_bytes);
    EXPECT_LE(after.files.size(), warm.files.size());
  }

  ExpectHits(load.found(), share);
  ExpectNothingHeld();
  for (int i = 0; i < 2; ++i) {
    for (const bool prefill : {true, false}) {
      Process& worker = prefill ? cluster.prefill(i) : cluster.decode(i);
      worker.Signal(SIGTERM);
      const auto status = worker.Wait(absl::Seconds(20));
      ASSERT_TRUE(status.ok()) << status.status();
      EXPECT_EQ(*status, 0);
      const auto line = worker.log().WaitFor(" stopped ", kPatience);
      ASSERT_TRUE(line.ok()) << line.status();
      EXPECT_EQ(FieldOf(*line, "free_blocks"), FieldOf(*line, "total_blocks")) << *line;
      EXPECT_NE(FieldOf(*line, "total_blocks"), "");
      EXPECT_EQ(FieldOf(*line, "leases"), "0") << *line;
    }
  }
  cluster.router().Signal(SIGTERM);
  const auto status = cluster.router().Wait(absl::Seconds(20));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 0);
  const SharedMemory left = SharedMemoryOf(cluster.pids(), shared_.path());
  EXPECT_EQ(left.segments, 0);
  EXPECT_THAT(left.files, testing::IsEmpty()) << "was left behind in " << shared_.path();
}

TEST_F(KillTest, EveryRequestFinishesWithTheTokensItHasInPeace) {
  const int kills = FromEnvironment("BATON_KILLS", 12);
  RunStorm(kDemoModel, {"cpu"}, kills < 100 ? 1000 : 1800, 0.25, kills);
}

// Kills workers of a model whose rotary tables change as a sequence grows. Each such change also
// sends the sequence back to prefill, without a kill. Later turns find little in the caches,
// because KV of another rotary table is of no use to them. The model's attention windows are
// shorter than most prompts.
TEST_F(KillTest, AModelOfWindowsAndManyRotaryTablesToo) {
  const ServedFolder folder(LongModelFolder(DType::kBF16, true));
  RunStorm(folder.path(), {"cpu"}, 600, 0, std::max(1, FromEnvironment("BATON_KILLS", 12) / 6),
           v1::SERVING_MODE_AUTO);
}

// Kills workers of a GGUF file with quantised weights, in their default arithmetic.
TEST_F(KillTest, AQuantisedGgufFileToo) {
  RunStorm(BATON_SOURCE_DIR "/common/model/testdata/llama.Q4_0.gguf", {"cpu"}, 600, 0.25,
           std::max(1, FromEnvironment("BATON_KILLS", 12) / 6));
}

// Kills workers on emulated devices. KV is pulled from device to device, between processes that
// die.
TEST_F(KillTest, WorkersOnEmulatedDevicesToo) {
  const ServedFolder folder("mistral_window_f32");
  RunStorm(folder.path(), {"cuda-emulated"}, 100, 0.1,
           std::max(1, FromEnvironment("BATON_KILLS", 12) / 6), v1::SERVING_MODE_COLOCATED);
}

// Kills workers on the backend that BATON_KILL_BACKEND names. A GPU may round differently in
// another batch. So a token is compared with the CPU's token only where the CPU's choice is clear,
// whichever worker computed the token.
TEST_F(KillTest, WorkersOnThisBackendToo) {
  const char* const backend = std::getenv("BATON_KILL_BACKEND");
  if (backend == nullptr) GTEST_SKIP() << "BATON_KILL_BACKEND names no backend";
  constexpr char kModel[] = "mistral_window_f32";
  const char* const models = std::getenv("BATON_MODELS");
  const ServedFolder folder(models != nullptr ? absl::StrCat(models, "/", kModel) : kModel);
  auto truth = Truth::Load(folder.path());
  ASSERT_TRUE(truth.ok()) << truth.status();
  CpuJudge judge(kModel, *std::move(truth));
  RunStorm(folder.path(), {backend, &judge}, 100, 0.1,
           std::max(1, FromEnvironment("BATON_KILLS", 12) / 6));
  const auto [tokens, compared] = judge.counts();
  std::printf("%d of %d tokens of different answers had to be what they were\n", compared, tokens);
  EXPECT_GT(tokens, 0);
  EXPECT_GE(compared, tokens / 4);
}

// The worker that computes the logprobs of the prompt dies when the client already has some of
// them.
TEST_F(KillTest, APromptIsScoredToItsEndByAnotherWorker) {
  constexpr int kRounds = 3;
  std::mt19937 random(FromEnvironment("BATON_SEED", 20261121));
  const auto truth = Truth::Load(kDemoModel, "f32");
  ASSERT_TRUE(truth.ok()) << truth.status();
  auto started =
      Cluster::Start({.prefill = 2,
                      .prefill_flags = {"--numerics=f32", "--threads=1", "--chunk-tokens=32"},
                      .decode_flags = {"--numerics=f32"}});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    SamplingOptions sampling;
    sampling.max_tokens = 12;
    sampling.prompt_logprobs = 2;
    sampling.repetition_penalty = 1.1f;
    const Case c = MakeCase(**truth, random, 1700, sampling);
    const uint32_t kill_at = std::uniform_int_distribution<uint32_t>(1, 700)(random);
    bool killed = false;
    const Answer answer =
        Generate(cluster.stub(), c.Request(), absl::Seconds(120), [&](const v1::Token& token) {
          if (killed || token.position() < kill_at) return;
          killed = true;
          for (int i = 0; i < 2; ++i) cluster.prefill(i).Signal(SIGKILL);
          for (int i = 0; i < 2; ++i) {
            const absl::Status back = cluster.RestartPrefill(i);
            EXPECT_TRUE(back.ok()) << back;
          }
        });
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_TRUE(killed);
    EXPECT_TRUE(c.Is(answer));
    EXPECT_GE(answer.summary.migrations(), 1u);
    ASSERT_TRUE(cluster.WaitReady(2, 1, kPatience).ok());
  }
  EXPECT_GE(LostByPhase(cluster.folder() + "/router.log")["prefill"], kRounds);
}

}  // namespace
}  // namespace baton
