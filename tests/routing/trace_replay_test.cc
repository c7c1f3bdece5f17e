#include "tests/routing/trace_replay.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/core/routing_policy.h"

namespace baton {
namespace {

using testing::ElementsAre;

// Returns the value of an environment variable, else `otherwise`.
std::string Setting(const char* variable, const std::string& otherwise) {
  const char* given = std::getenv(variable);
  return given != nullptr ? given : otherwise;
}

// Always chooses a worker that has cached the most tokens of the prompt, whatever its load. Of
// equal workers it chooses one at random.
class LongestMatchPolicy : public RoutingPolicy {
 public:
  explicit LongestMatchPolicy(uint64_t seed) : random_(seed) {}

  size_t Choose(const RouteRequest&, absl::Span<const RouteCandidate> candidates) override {
    const auto merit = [](const RouteCandidate& w) {
      return std::tuple(!w.avoid, w.has_room, w.cached_tokens);
    };
    std::vector<size_t> best;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!best.empty() && merit(candidates[i]) < merit(candidates[best[0]])) continue;
      if (!best.empty() && merit(candidates[i]) > merit(candidates[best[0]])) best.clear();
      best.push_back(i);
    }
    return best[random_() % best.size()];
  }

 private:
  std::mt19937_64 random_;
};

// Sets the options of a replay to the policy of this name. With the ending "-without-lag", routers
// learn at once what workers have cached. With the ending "-3-routers", there are three routers. A
// policy without a name in RoutingPolicyFromName gets its name here.
void SetPolicy(absl::string_view name, ReplayOptions* options) {
  if (absl::ConsumeSuffix(&name, "-without-lag")) {
    options->cache_interval = options->wire_delay = absl::ZeroDuration();
  }
  if (absl::ConsumeSuffix(&name, "-3-routers")) options->routers = 3;
  if (name == "longest-match") {
    options->adjust_router = [](RouterCoreOptions* router) {
      router->new_policy = [](uint64_t seed) { return std::make_unique<LongestMatchPolicy>(seed); };
    };
    return;
  }
  const absl::StatusOr<RoutingPolicyKind> kind = RoutingPolicyFromName(name);
  BATON_CHECK(kind.ok()) << name << ": " << kind.status();
  options->adjust_router = [kind = *kind](RouterCoreOptions* router) { router->policy = kind; };
}

// A trace of conversations: every request begins with the prompt of the request before it in the
// same conversation.
Trace Conversations(int conversations, int turns) {
  Trace trace;
  uint64_t next_block = 0;
  std::vector<std::vector<uint64_t>> blocks(static_cast<size_t>(conversations));
  for (int turn = 0; turn < turns; ++turn) {
    for (std::vector<uint64_t>& prompt : blocks) {
      for (int i = 0; i < 3; ++i) prompt.push_back(next_block++);
      trace.rows.push_back({.at_s = 3.0 * turn,
                            .prompt_tokens = static_cast<uint32_t>(prompt.size()) * 512 - 100,
                            .output_tokens = 100,
                            .blocks = prompt});
      // The last block is not full, so the next prompt does not share it.
      prompt.pop_back();
    }
  }
  return trace;
}

TEST(TraceReplayTest, EqualBlocksGiveEqualTokensAndTheLastBlockIsScaled) {
  const std::vector<TokenId> a = ScaledPrompt({.prompt_tokens = 1024, .blocks = {1, 2}}, 256);
  const std::vector<TokenId> b = ScaledPrompt({.prompt_tokens = 1000, .blocks = {1, 3}}, 256);
  const std::vector<TokenId> c = ScaledPrompt({.prompt_tokens = 513, .blocks = {2, 1}}, 256);
  ASSERT_EQ(a.size(), 32u);
  ASSERT_EQ(b.size(), 16u + 15);
  ASSERT_EQ(c.size(), 17u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 16, b.begin()));
  EXPECT_TRUE(std::equal(a.begin() + 16, a.end(), c.begin()));
  EXPECT_NE(a[16], b[16]);
}

TEST(TraceReplayTest, RequestsOfOneTimeAreSpreadOverThreeSeconds) {
  Trace trace{.rows = {{.at_s = 0}, {.at_s = 3}, {.at_s = 3}, {.at_s = 3}, {.at_s = 6}}};
  SpreadArrivals(&trace);
  std::vector<double> at_s;
  for (const TraceRow& row : trace.rows) at_s.push_back(row.at_s);
  EXPECT_THAT(at_s, ElementsAre(0, 3, 4, 5, 6));
}

TEST(TraceReplayTest, OneWorkerWithALargePoolFindsAlmostAllThatCanBeFound) {
  SetLogLevel(Severity::kError);
  Trace trace = Conversations(8, 6);
  SpreadArrivals(&trace);
  // Each turn but the first finds the blocks of the turn before, two more in each.
  EXPECT_EQ(FindableBlocks(trace), 8u * (2 + 4 + 6 + 8 + 10));
  EXPECT_EQ(DistinctBlocks(trace), 8u * 6 * 3);
  ReplayOptions options{.prefill_workers = 1, .decode_workers = 1, .prefill_blocks = 1000};
  const ReplayResult large = Replay(trace, options);
  EXPECT_EQ(large.cached_blocks, FindableBlocks(trace));
  EXPECT_GT(large.prefill_busy, 0);
  EXPECT_LT(large.prefill_busy, 1);
  EXPECT_GT(large.p50_ttft, absl::ZeroDuration());
  EXPECT_GE(large.p99_ttft, large.p50_ttft);
  options.prefill_blocks = 20;
  EXPECT_LT(Replay(trace, options).cached_blocks, large.cached_blocks);
}

TEST(TraceReplayTest, ThreeRoutersFindWhatOneRouterFinds) {
  SetLogLevel(Severity::kError);
  Trace trace = Conversations(8, 6);
  SpreadArrivals(&trace);
  ReplayOptions options{.prefill_blocks = 1000};
  SetPolicy("longest-match-3-routers", &options);
  EXPECT_EQ(options.routers, 3);
  // A turn comes seconds after the turn before it, so each router knows where its blocks are.
  EXPECT_EQ(Replay(trace, options).cached_blocks, FindableBlocks(trace));
  SetPolicy("round-robin", &options);
  EXPECT_LT(Replay(trace, options).cached_blocks, FindableBlocks(trace));
}

// The limits for Mooncake's conversation trace. The keys are the sizes of all prefill pools
// together, as shares of the trace's blocks. The values are the hits of the policy `prefix`, as
// shares of the blocks that one unlimited cache finds.
const std::map<std::string, double> kMinHits = {{"0.2", 0.85}, {"0.5", 0.92}, {"1", 0.93}};

// Compares the results of all policies at one size of the pools with the limits.
void ExpectLimits(const std::map<std::string, ReplayResult>& results, double min_hits,
                  uint64_t findable) {
  const auto hits = [&](const char* name) {
    return static_cast<double>(results.at(name).cached_blocks);
  };
  const auto ttft = [&](const char* name) {
    return absl::ToDoubleSeconds(results.at(name).mean_ttft);
  };
  EXPECT_GE(hits("prefix"), min_hits * static_cast<double>(findable));
  EXPECT_GE(hits("prefix"), 0.97 * hits("prefix-without-lag"));
  EXPECT_LE(ttft("prefix"), 0.7 * ttft("least-loaded"));
  EXPECT_GE(hits("prefix-3-routers"), 0.95 * hits("prefix"));
  EXPECT_LE(ttft("prefix-3-routers"), 1.1 * ttft("prefix"));
}

// Compares policies on a recorded trace, and prints a line for each of them and each size of the
// prefill pools. Environment:
//   BATON_TRACE           file with the trace
//   BATON_TRACE_POLICIES  names of policies, in place of all
//   BATON_TRACE_POOLS     sizes of all prefill pools together, as shares of the trace's blocks
//   BATON_TRACE_BUSY      share of time in which least-loaded keeps the prefill workers busy
//   BATON_TRACE_SPEED     seconds of the trace in one simulated second
//   BATON_TRACE_ROWS      number of rows to replay, from the first
//   BATON_TRACE_REPORTS   milliseconds of the trace between two load reports of a worker
// The limits are checked if no variable but the first is set, and the trace is Mooncake's.
TEST(TraceReplayTest, HitsAndTtftOfEachPolicy) {
  const std::string path = Setting("BATON_TRACE", "");
  if (path.empty()) GTEST_SKIP() << "BATON_TRACE does not name a trace";
  SetLogLevel(Severity::kError);
  absl::StatusOr<Trace> trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const size_t rows = std::strtoull(Setting("BATON_TRACE_ROWS", "10000000").c_str(), nullptr, 10);
  if (rows < trace->rows.size()) trace->rows.resize(rows);
  SpreadArrivals(&*trace);
  const uint64_t blocks = DistinctBlocks(*trace), findable = FindableBlocks(*trace);
  ReplayOptions options;
  options.speed = std::stod(Setting("BATON_TRACE_SPEED", "10"));
  options.report_interval = absl::Milliseconds(std::stod(Setting("BATON_TRACE_REPORTS", "250")));
  const double busy = std::stod(Setting("BATON_TRACE_BUSY", "0.8"));
  std::cout << trace->rows.size() << " requests, " << blocks << " blocks, " << findable
            << " found by one unlimited cache; " << options.speed << " times faster\n";
  bool limits = blocks == 182790 && findable == 105592;
  for (const char* variable : {"BATON_TRACE_POLICIES", "BATON_TRACE_POOLS", "BATON_TRACE_BUSY",
                               "BATON_TRACE_SPEED", "BATON_TRACE_ROWS", "BATON_TRACE_REPORTS"}) {
    limits &= std::getenv(variable) == nullptr;
  }

  for (const std::string& pool :
       std::vector<std::string>(absl::StrSplit(Setting("BATON_TRACE_POOLS", "0.2,0.5,1"), ','))) {
    options.prefill_blocks =
        static_cast<int>(std::stod(pool) * static_cast<double>(blocks) / options.prefill_workers);
    SetPolicy("least-loaded", &options);
    options.prefill_per_token = TimePerTokenFor(busy, *trace, options);
    std::cout << "pools of " << pool << ", 4 x " << options.prefill_blocks
              << " blocks; prefill takes " << options.prefill_per_token << " per token\n";
    std::map<std::string, ReplayResult> results;
    for (const std::string& name : std::vector<std::string>(
             absl::StrSplit(Setting("BATON_TRACE_POLICIES",
                                    "prefix,prefix-without-lag,prefix-3-routers,least-loaded,"
                                    "round-robin,longest-match"),
                            ','))) {
      ReplayOptions with = options;
      SetPolicy(name, &with);
      const ReplayResult result = results[name] = Replay(*trace, with);
      const auto ms = [](absl::Duration d) { return absl::ToDoubleMilliseconds(d); };
      std::cout << absl::StreamFormat(
                       "  %-20s hits %6d of %d (%.3f)  TTFT mean %.1f p50 %.1f p99 %.1f ms  "
                       "busy %.3f",
                       name, result.cached_blocks, findable,
                       static_cast<double>(result.cached_blocks) / static_cast<double>(findable),
                       ms(result.mean_ttft), ms(result.p50_ttft), ms(result.p99_ttft),
                       result.prefill_busy)
                << std::endl;
    }
    if (limits) ExpectLimits(results, kMinHits.at(pool), findable);
  }
}

}  // namespace
}  // namespace baton
