#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/retry_after.h"
#include "gtest/gtest.h"
#include "tests/sim/history.h"
#include "tests/sim/sim_cluster.h"

// More work than the workers can do: how much of what they do is of use.
namespace baton {
namespace {

// Llama 3 8B with 16-bit weights on an NVIDIA L4 (121 TFLOP/s dense, of which GEMMs reach half; 300
// GB/s): 0.27 ms for a prompt token, 55 ms to read the weights in a decode step.
SimCluster::Options Cluster(uint64_t seed, ServingMode mode) {
  SimCluster::Options options;
  options.seed = seed;
  options.mode = mode;
  options.prefill_workers = 1;
  options.decode_workers = 2;
  options.prefill = {.chunk_tokens = 256, .slice_bytes = 4096};
  options.decode = {.max_batch = 32, .chunk_tokens = 128};
  options.prefill_times = {.per_step = absl::Milliseconds(8), .per_row = absl::Microseconds(270)};
  options.decode_times = {.per_step = absl::Milliseconds(55), .per_row = absl::Microseconds(300)};
  options.prefill_blocks = 1024;
  options.decode_blocks = 1024;
  return options;
}

// Describes the requests of one caller.
struct Kind {
  std::string caller = "a";
  double rate = 1;  // requests per second
  int min_prompt = 50, max_prompt = 300;
  int min_answer = 10, max_answer = 70;
  absl::Duration deadline = absl::Seconds(10);
  std::optional<absl::Duration> ttft;  // target of the requests
};

class Load {
 public:
  Load(uint64_t seed, ServingMode mode) : Load(seed, Cluster(seed, mode)) {}
  Load(uint64_t seed, const SimCluster::Options& options) : random_(seed), cluster_(options) {}

  // Sends requests of all kinds until `seconds` have passed.
  void Run(const std::vector<Kind>& kinds, int seconds) {
    begin_ = cluster_.now() + absl::Seconds(2);
    end_ = begin_ + absl::Seconds(seconds);
    std::vector<CheckedRequest> requests;
    for (const Kind& kind : kinds) {
      std::exponential_distribution<double> gap(kind.rate);
      for (absl::Time at = begin_; at < end_; at += absl::Seconds(gap(random_))) {
        requests.push_back(Next(kind, at, requests.size()));
      }
    }
    std::stable_sort(requests.begin(), requests.end(),
                     [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
    for (CheckedRequest& request : requests) {
      const absl::Time at = request.arrival;
      clients_.push_back(cluster_.Add(std::move(request)));
      if (clients_.size() % 200 == 0) cluster_.RunUntil(at);
    }
    cluster_.RunUntil(end_);
  }
  void Drain() {
    cluster_.RunUntilIdle(absl::Minutes(10));
    cluster_.ExpectAllBack();
    for (const SimClient* client : clients_) {
      if (client->status->ok()) {
        ASSERT_EQ(client->tokens, cluster_.Expected(client->request)) << client->request.request_id;
      }
    }
  }

  struct Rate {
    double answers = 0, tokens = 0;  // per second
  };
  // Complete answers and their tokens per second, from `from` seconds after the begin to the end.
  Rate Good(int from) const {
    const absl::Time begin = begin_ + absl::Seconds(from);
    Rate rate;
    for (const SimClient* client : clients_) {
      if (!client->status || !client->status->ok()) continue;
      if (client->times.back() < begin || client->times.back() >= end_) continue;
      rate.answers += 1;
      rate.tokens += static_cast<double>(client->tokens.size());
    }
    const double seconds = absl::ToDoubleSeconds(end_ - begin);
    return {rate.answers / seconds, rate.tokens / seconds};
  }
  // Share of the shown tokens that went to requests that then failed.
  double Wasted() const {
    double shown = 0, wasted = 0;
    for (const SimClient* client : clients_) {
      shown += static_cast<double>(client->tokens.size());
      if (!client->status->ok()) wasted += static_cast<double>(client->tokens.size());
    }
    return shown == 0 ? 0 : wasted / shown;
  }
  // Tokens of prompts and answers that were computed for each caller in each second. A prompt is
  // computed in several steps, evenly from its first one to its first token.
  std::map<std::string, std::vector<double>> Computed() const {
    std::map<std::string, std::vector<double>> computed;
    const auto seconds = static_cast<size_t>(absl::ToInt64Seconds(end_ - begin_));
    for (const SimClient* client : clients_) {
      std::vector<double>& of = computed[client->request.caller];
      of.resize(seconds);
      const auto add = [&](absl::Time at, double tokens) {
        const auto second = static_cast<size_t>(absl::ToInt64Seconds(at - begin_));
        if (second < seconds) of[second] += tokens;
      };
      for (const absl::Time at : client->times) add(at, 1);
      if (client->times.empty()) continue;
      const absl::Duration prefill = client->summary
                                         ? absl::Microseconds(client->summary->timing.prefill_us)
                                         : absl::ZeroDuration();
      const size_t prompt = client->request.prompt.size();
      for (size_t i = 0; i < prompt; ++i) {
        add(client->times.front() -
                prefill * (static_cast<double>(i) / static_cast<double>(prompt)),
            1);
      }
    }
    return computed;
  }
  std::string Statuses() const {
    std::map<std::string, int> counts;
    for (const SimClient* client : clients_) {
      ++counts[client->status ? absl::StatusCodeToString(client->status->code()) : "none"];
    }
    std::string text;
    for (const auto& [code, count] : counts) absl::StrAppend(&text, " ", code, " ", count);
    return text;
  }
  const std::vector<SimClient*>& clients() const { return clients_; }
  SimCluster& cluster() { return cluster_; }

 private:
  CheckedRequest Next(const Kind& kind, absl::Time at, size_t number) {
    CheckedRequest request;
    request.request_id = absl::StrCat("r", number);
    request.caller = kind.caller;
    const int prompt = Between(random_, kind.min_prompt, kind.max_prompt);
    for (int i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(random_() % 256));
    }
    request.sampling.max_tokens = Between(random_, kind.min_answer, kind.max_answer);
    request.sampling.seed = random_();
    request.arrival = at;
    request.deadline = at + kind.deadline;
    request.slo.ttft = kind.ttft;
    return request;
  }

  std::mt19937_64 random_;
  SimCluster cluster_;
  std::vector<SimClient*> clients_;
  absl::Time begin_, end_;
};

class OverloadTest : public ::testing::TestWithParam<ServingMode> {
 protected:
  OverloadTest() { SetLogLevel(Severity::kError); }
};

TEST_P(OverloadTest, GoodputStaysNearTheCapacity) {
  const int seconds = Setting("BATON_OVERLOAD_SECONDS", 30);
  const int warm = seconds / 3;
  Load whole(1, GetParam());
  whole.Run({{.rate = 40, .deadline = absl::InfiniteDuration()}}, seconds);
  const Load::Rate capacity = whole.Good(warm);
  std::cout << "capacity " << capacity.answers << " answers and " << capacity.tokens
            << " tokens per second;" << whole.Statuses() << "\n";
  for (int seed = Setting("BATON_OVERLOAD_SEED", 1),
           end = seed + Setting("BATON_OVERLOAD_SEEDS", 1);
       seed < end; ++seed) {
    for (const double times : {0.7, 2.0, 3.0, 10.0}) {
      Load load(static_cast<uint64_t>(seed), GetParam());
      load.Run({{.rate = capacity.answers * times}}, seconds);
      load.Drain();
      const Load::Rate good = load.Good(warm);
      std::cout << "seed " << seed << ", " << times << " times: " << good.answers / capacity.answers
                << " of the answers and " << good.tokens / capacity.tokens
                << " of the tokens, wasted " << load.Wasted() << ";" << load.Statuses() << "\n";
      if (times < 1) {
        for (const SimClient* client : load.clients()) {
          EXPECT_TRUE(client->status->ok()) << *client->status;
        }
        continue;
      }
      EXPECT_GE(good.answers, 0.85 * capacity.answers);
      // Long answers are refused somewhat more often than short ones.
      EXPECT_GE(good.tokens, 0.75 * capacity.tokens);
      EXPECT_LE(load.Wasted(), 0.05);
      for (const SimClient* client : load.clients()) {
        if (!absl::IsResourceExhausted(*client->status)) continue;
        EXPECT_TRUE(RetryAfter(*client->status)) << *client->status;
      }
    }
  }
}

// Three callers that all want more than their share.
TEST_P(OverloadTest, CallersGetEqualShares) {
  for (int seed = Setting("BATON_OVERLOAD_SEED", 1),
           end = seed + Setting("BATON_OVERLOAD_SEEDS", 1);
       seed < end; ++seed) {
    Load load(static_cast<uint64_t>(seed), GetParam());
    load.Run({{.caller = "short",
               .rate = 40,
               .min_prompt = 20,
               .max_prompt = 40,
               .deadline = absl::Minutes(1)},
              {.caller = "prompts",
               .rate = 20,
               .min_prompt = 300,
               .max_prompt = 400,
               .min_answer = 5,
               .max_answer = 20,
               .deadline = absl::Minutes(1)},
              {.caller = "answers",
               .rate = 60,
               .min_prompt = 20,
               .max_prompt = 60,
               .min_answer = 60,
               .max_answer = 100,
               .deadline = absl::Minutes(1)}},
             40);
    load.Drain();
    for (const SimClient* client : load.clients()) {
      EXPECT_TRUE(client->status->ok() || absl::IsResourceExhausted(*client->status))
          << *client->status;
    }
    const auto computed = load.Computed();
    std::map<std::string, double> worst;
    constexpr size_t kWindow = 10, kWarm = 10;
    for (size_t from = kWarm; from + kWindow <= computed.begin()->second.size(); ++from) {
      const auto sum = [&](const std::vector<double>& of) {
        return std::accumulate(of.begin() + static_cast<ptrdiff_t>(from),
                               of.begin() + static_cast<ptrdiff_t>(from + kWindow), 0.0);
      };
      double all = 0;
      for (const auto& [caller, of] : computed) all += sum(of);
      for (const auto& [caller, of] : computed) {
        const double share = sum(of) / (all / static_cast<double>(computed.size()));
        if (worst.try_emplace(caller, share).first->second > share) worst[caller] = share;
      }
    }
    for (const auto& [caller, share] : worst) {
      std::cout << "seed " << seed << ", " << caller << ": at least " << share
                << " of the fair share;" << load.Statuses() << "\n";
      EXPECT_GE(share, 0.8) << caller;
    }
  }
}

// Short and long prompts at a prefill worker, at 0.8 of its capacity. Most of the short ones must
// have their first token in time although a long one takes the worker's whole time for 0.4 to 0.9
// s.
TEST(TtftSimTest, ShortPromptsDoNotWaitForLongOnes) {
  SetLogLevel(Severity::kError);
  const std::map<std::string, absl::Duration> target = {{"short", absl::Milliseconds(800)},
                                                        {"long", absl::Seconds(6)}};
  for (const bool with_targets : {false, true}) {
    std::map<std::string, std::vector<absl::Duration>> ttft;
    std::map<std::string, double> met, all;
    for (int seed = Setting("BATON_OVERLOAD_SEED", 1),
             end = seed + Setting("BATON_OVERLOAD_SEEDS", 1);
         seed < end; ++seed) {
      SimCluster::Options options =
          Cluster(static_cast<uint64_t>(seed), ServingMode::kDisaggregated);
      options.context = 4096;
      options.prefill_blocks = options.decode_blocks = 8192;
      Load load(static_cast<uint64_t>(seed), options);
      Kind short_ones = {.caller = "short",
                         .rate = 6.4,
                         .min_prompt = 50,
                         .max_prompt = 200,
                         .max_answer = 20,
                         .deadline = absl::Minutes(1)};
      Kind long_ones = {.caller = "long",
                        .rate = 0.8,
                        .min_prompt = 1500,
                        .max_prompt = 3100,
                        .max_answer = 20,
                        .deadline = absl::Minutes(1)};
      for (Kind* kind : {&short_ones, &long_ones}) {
        if (with_targets) kind->ttft = target.at(kind->caller);
      }
      load.Run({short_ones, long_ones}, 60);
      load.Drain();
      for (const SimClient* client : load.clients()) {
        const std::string& caller = client->request.caller;
        ++all[caller];
        if (client->times.empty()) continue;
        ttft[caller].push_back(client->times[0] - client->request.arrival);
        met[caller] += ttft[caller].back() <= target.at(caller);
      }
    }
    for (auto& [caller, times] : ttft) {
      std::sort(times.begin(), times.end());
      const absl::Duration sum = std::accumulate(times.begin(), times.end(), absl::ZeroDuration());
      std::cout << (with_targets ? "with targets, " : "without targets, ") << caller << ": "
                << met[caller] / all[caller] << " of " << all[caller] << " in time, mean "
                << sum / static_cast<int64_t>(times.size()) << ", P90 "
                << times[times.size() * 9 / 10] << ", max " << times.back() << "\n";
    }
    EXPECT_GE(met["short"], 0.95 * all["short"]);
    EXPECT_GE(met["long"], 0.9 * all["long"]);
  }
}

// Two of three decode workers are of no use. The third one's capacity is what remains.
TEST(SickWorkersSimTest, OneOfThreeDecodeWorkersGivesWhatItGivesAlone) {
  SetLogLevel(Severity::kError);
  using Health = SimCluster::Health;
  constexpr int kSeconds = 28, kWarm = 12;
  for (const ServingMode mode :
       {ServingMode::kDisaggregated, ServingMode::kColocated, ServingMode::kAuto}) {
    SimCluster::Options options = Cluster(1, mode);
    options.prefill_workers = 2;
    options.decode_workers = 1;
    options.adjust_router = [](RouterCoreOptions* router) {
      router->leg_silence_limit = absl::Seconds(5);
    };
    const std::vector<Kind> kinds = {{.rate = 20, .deadline = absl::Seconds(30)}};
    Load alone(1, options);
    alone.Run(kinds, kSeconds);
    alone.Drain();
    const Load::Rate capacity = alone.Good(kWarm);
    options.decode_workers = 3;
    for (const Health health : {Health::kFails, Health::kLies, Health::kSilent}) {
      Load load(1, options);
      // Workers 0 and 1 are the prefill workers.
      for (const int worker : {2, 3}) load.cluster().SetHealth(worker, health);
      load.Run(kinds, kSeconds);
      load.Drain();
      const Load::Rate good = load.Good(kWarm);
      std::cout << ServingModeName(mode) << ", fault " << static_cast<int>(health) << ": "
                << good.answers / capacity.answers << " of " << capacity.answers
                << " answers per second;" << load.Statuses() << "\n";
      // A silent worker keeps the requests that it got, and the blocks of their prompts at the
      // prefill workers, until they are given up.
      EXPECT_GE(good.answers, (health == Health::kSilent ? 0.4 : 0.8) * capacity.answers);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, OverloadTest,
                         ::testing::Values(ServingMode::kDisaggregated, ServingMode::kColocated,
                                           ServingMode::kAuto),
                         [](const auto& info) {
                           return info.param == ServingMode::kAuto        ? "Auto"
                                  : info.param == ServingMode::kColocated ? "Colocated"
                                                                          : "Disaggregated";
                         });

}  // namespace
}  // namespace baton
