// Real processes over UCX under steady load; workers are killed, stopped past their lease, and
// routers killed. Every request that was not itself cut off by a router's death finishes with the
// tokens it has in peace.
//
// BATON_KILLS sets the number of kills (default 24; `./baton soak` makes 200), BATON_SEED the seed.

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/truth.h"

namespace baton {
namespace {

constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";
constexpr int kStreams = 12;
constexpr int kRouterEvery = 20;  // every so many kills it is the router's turn
constexpr int kStopEvery = 14;    // or a worker is stopped instead
constexpr absl::Duration kPatience = absl::Seconds(60);  // for a worker to be back in use

int FromEnvironment(const char* name, int fallback) {
  const char* text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : fallback;
}

struct Case {
  std::vector<TokenId> prompt;
  int max_tokens = 0;
  uint64_t seed = 0;  // 0: greedy
  std::vector<TokenId> expected;

  v1::GenerateRequest Request() const {
    v1::GenerateRequest request = TokenRequest(prompt, max_tokens);
    if (seed != 0) {
      request.mutable_sampling()->set_temperature(1);
      request.mutable_sampling()->set_seed(seed);
    }
    return request;
  }
};

// Prompts long enough that prefill and pull last a while, answers long enough that decode does.
std::vector<Case> MakeCases(std::mt19937& random) {
  const auto truth = Truth::Load(kDemoModel);
  BATON_CHECK(truth.ok()) << truth.status();
  const int vocab = (*truth)->config().vocab;
  std::vector<Case> cases(48);
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    const int length = std::uniform_int_distribution<int>(1, i % 3 == 0 ? 1800 : 400)(random);
    for (int t = 0; t < length; ++t)
      c.prompt.push_back(std::uniform_int_distribution<TokenId>(0, vocab - 1)(random));
    c.max_tokens = std::uniform_int_distribution<int>(8, 160)(random);
    c.seed = i % 2 == 0 ? 0 : random() | 1;
    SamplingOptions sampling;
    sampling.max_tokens = c.max_tokens;
    sampling.temperature = c.seed == 0 ? 0 : 1;
    sampling.seed = c.seed;
    auto expected = (*truth)->Answer(c.prompt, sampling);
    BATON_CHECK(expected.ok()) << expected.status();
    c.expected = *std::move(expected);
  }
  return cases;
}

// Which workers answered since they were last forgotten, by address.
class UsedWorkers {
 public:
  void Add(const v1::Summary& summary) {
    MutexLock lock(&mutex_);
    used_.insert(summary.prefill_worker());
    used_.insert(summary.decode_worker());
    changed_.SignalAll();
  }
  void Forget(const std::string& address) {
    MutexLock lock(&mutex_);
    used_.erase(address);
  }
  bool Await(const std::string& address, absl::Duration timeout) {
    const absl::Time until = absl::Now() + timeout;
    MutexLock lock(&mutex_);
    while (!used_.contains(address)) {
      if (absl::Now() >= until) return false;
      changed_.WaitFor(&mutex_, absl::Milliseconds(100));
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> used_ ABSL_GUARDED_BY(mutex_);
};

struct Tally {
  std::atomic<int> right = 0, wrong = 0, failed = 0, cut_off = 0, migrated = 0;
};

// Clients that ask one case after another until told to stop.
class Load {
 public:
  Load(Cluster& cluster, const std::vector<Case>& cases, UsedWorkers& used)
      : cluster_(cluster), cases_(cases), used_(used) {
    for (int i = 0; i < kStreams; ++i) threads_.emplace_back([this] { Ask(); });
  }
  ~Load() { Stop(); }

  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // From the moment a router is about to be killed until another one serves, clients may be told
  // Unavailable.
  void RouterDies() {
    router_down_ = true;
    ++router_deaths_;
  }
  void RouterIsBack() { router_down_ = false; }

  Tally tally;

 private:
  void Ask() {
    while (!stop_) {
      const size_t i = next_++ % cases_.size();
      const Case& c = cases_[i];
      if (router_down_) {
        absl::SleepFor(absl::Milliseconds(10));
        continue;
      }
      const bool was_down = router_down_;
      const int deaths_before = router_deaths_;
      const Answer answer = Generate(cluster_.stub(), c.Request(), absl::Seconds(300));
      if (answer.status.ok()) {
        used_.Add(answer.summary);
        if (answer.summary.migrations() > 0) ++tally.migrated;
        const bool same = answer.ids() == c.expected;
        ++(same ? tally.right : tally.wrong);
        if (!same)
          ADD_FAILURE() << "case " << i << ", prompt of " << c.prompt.size()
                        << " tokens: wrong tokens after " << answer.summary.migrations()
                        << " migrations";
      } else if (absl::IsUnavailable(answer.status) &&
                 (was_down || router_deaths_ != deaths_before)) {
        ++tally.cut_off;
        const std::vector<TokenId> ids = answer.ids();
        if (!std::equal(ids.begin(), ids.end(), c.expected.begin())) {
          ++tally.wrong;
          ADD_FAILURE() << "case " << i << ": wrong tokens before its router died";
        }
      } else {
        ++tally.failed;
        ADD_FAILURE() << "case " << i << ", prompt of " << c.prompt.size()
                      << " tokens: " << answer.status;
      }
    }
  }

  Cluster& cluster_;
  const std::vector<Case>& cases_;
  UsedWorkers& used_;
  std::atomic<bool> stop_ = false;
  std::atomic<size_t> next_ = 0;
  std::atomic<int> router_deaths_ = 0;
  std::atomic<bool> router_down_ = false;
  std::vector<std::thread> threads_;
};

// What the router wrote about requests that lost a worker: how many in which phase.
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

int Lost(const std::string& router_log) {
  int lost = 0;
  for (const auto& [phase, count] : LostByPhase(router_log)) lost += count;
  return lost;
}

// Segments of shared memory that these processes made and that are still there.
int SharedMemorySegments(const std::set<pid_t>& makers) {
  std::ifstream file("/proc/sysvipc/shm");
  int segments = 0;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    pid_t maker = 0;
    if (columns.size() > 4 && absl::SimpleAtoi(columns[4], &maker) && makers.contains(maker))
      ++segments;
  }
  return segments;
}

// Names in /dev/shm: what a killed process leaves there stays until somebody removes it.
std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    names.insert(entry.path().filename());
  }
  return names;
}

int64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The value of `name=` in the last line of a log that has the event.
std::string LastField(const std::string& log, const std::string& event, const std::string& name) {
  std::ifstream file(log);
  std::string value;
  for (std::string line; std::getline(file, line);) {
    if (!absl::StrContains(line, absl::StrCat(" ", event, " "))) continue;
    const size_t at = line.find(absl::StrCat(" ", name, "="));
    if (at != line.npos)
      value = line.substr(at + name.size() + 2, line.find(' ', at + 1) - at - name.size() - 2);
  }
  return value;
}

TEST(KillTest, EveryRequestFinishesWithTheTokensItHasInPeace) {
  const int kills = FromEnvironment("BATON_KILLS", 24);
  const int seed = FromEnvironment("BATON_SEED", 20261121);
  std::printf("seed %d, %d kills\n", seed, kills);
  std::mt19937 random(seed);
  const std::vector<Case> cases = MakeCases(random);
  const std::set<std::string> files_before = SharedMemoryFiles();

  auto started = Cluster::Start({.prefill = 2,
                                 .decode = 2,
                                 .prefill_flags = {"--chunk-tokens=128", "--lease=3s"},
                                 .decode_flags = {"--max-batch=16"}});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  UsedWorkers used;
  Load load(cluster, cases, used);
  int killed = 0, stopped = 0, routers = 0;
  int hit = 0;  // kills and stops that a request lost its worker by
  const std::string router_log = cluster.folder() + "/router.log";
  int lost_before = 0;
  int64_t router_resident = 0;
  for (int k = 0; k < kills && !testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE(absl::StrCat("kill ", k));
    // A moment that the seed chooses, in steps of the load rather than of a schedule.
    absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<int>(20, 250)(random)));
    const int i = std::uniform_int_distribution<int>(0, 1)(random);
    if (k % kRouterEvery == kRouterEvery / 2) {
      load.RouterDies();
      cluster.router().Signal(SIGKILL);
      ASSERT_TRUE(cluster.router().Wait(absl::Seconds(10)).ok());
      ASSERT_TRUE(cluster.RestartRouter().ok());
      ++routers;
      router_resident = 0;
    } else {
      const bool prefill = std::uniform_int_distribution<int>(0, 1)(random) == 0;
      Process& victim = prefill ? cluster.prefill(i) : cluster.decode(i);
      if (k % kStopEvery == kStopEvery / 2) {
        victim.Signal(SIGSTOP);
        ++stopped;
        absl::SleepFor(absl::Seconds(8));  // past the lease, the report limit and the stall limit
        const std::string address =
            prefill ? cluster.prefill_address(i) : cluster.decode_address(i);
        used.Forget(address);
        victim.Signal(SIGCONT);
        ASSERT_TRUE(cluster.WaitReady(2, 2, kPatience).ok());
        EXPECT_TRUE(used.Await(address, kPatience)) << address << " woke up and is not used";
        hit += Lost(router_log) > lost_before;
        lost_before = Lost(router_log);
        continue;
      }
      victim.Signal(SIGKILL);
      ++killed;
      ASSERT_TRUE(victim.Wait(absl::Seconds(10)).ok());
      ASSERT_TRUE((prefill ? cluster.RestartPrefill(i) : cluster.RestartDecode(i)).ok());
      ASSERT_TRUE(cluster.WaitReady(2, 2, kPatience).ok());
      const std::string address = prefill ? cluster.prefill_address(i) : cluster.decode_address(i);
      EXPECT_TRUE(used.Await(address, kPatience)) << address << " came back and is not used";
    }
    ASSERT_TRUE(cluster.WaitReady(2, 2, kPatience).ok());
    load.RouterIsBack();
    hit += Lost(router_log) > lost_before;
    lost_before = Lost(router_log);
    if (router_resident == 0) router_resident = ResidentBytes(cluster.router().pid());
  }
  load.Stop();
  const Tally& tally = load.tally;
  std::printf(
      "kills %d, stops %d, router kills %d; requests: %d right, %d of them migrated, %d told "
      "Unavailable by a "
      "router's death, %d failed, %d wrong\n",
      killed, stopped, routers, tally.right.load(), tally.migrated.load(), tally.cut_off.load(),
      tally.failed.load(), tally.wrong.load());
  const std::map<std::string, int> phases = LostByPhase(router_log);
  for (const auto& [phase, count] : phases) {
    std::printf("requests that lost a worker while in %s: %d\n", phase.c_str(), count);
  }
  std::printf("kills and stops that cost some request its worker: %d\n", hit);
  EXPECT_GE(hit, std::max(1, kills * 30 / 200));
  if (kills >= 200) {
    EXPECT_EQ(phases.size(), 4u) << "queue, prefill, pull and decode";
  }
  const int64_t router_now = ResidentBytes(cluster.router().pid());
  std::printf("router memory %.1f -> %.1f MiB\n", router_resident / 1048576.0,
              router_now / 1048576.0);
  EXPECT_LT(router_now, router_resident + (64 << 20));

  for (int i = 0; i < 2; ++i) {
    for (const bool prefill : {true, false}) {
      Process& worker = prefill ? cluster.prefill(i) : cluster.decode(i);
      worker.Signal(SIGTERM);
      const auto status = worker.Wait(absl::Seconds(20));
      ASSERT_TRUE(status.ok()) << status.status();
      EXPECT_EQ(*status, 0);
      const std::string log =
          absl::StrCat(cluster.folder(), prefill ? "/prefill" : "/decode", i, ".log");
      EXPECT_EQ(LastField(log, "stopped", "free_blocks"), LastField(log, "stopped", "total_blocks"))
          << log;
      EXPECT_NE(LastField(log, "stopped", "total_blocks"), "");
    }
  }
  cluster.router().Signal(SIGTERM);
  const auto status = cluster.router().Wait(absl::Seconds(20));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 0);
  EXPECT_EQ(SharedMemorySegments(cluster.pids()), 0);
  for (const std::string& name : SharedMemoryFiles()) {
    EXPECT_TRUE(files_before.contains(name)) << "/dev/shm/" << name << " was left behind";
  }
}

}  // namespace
}  // namespace baton
