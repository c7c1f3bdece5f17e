#include "tests/routing/trace_replay.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
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

// A way to choose workers. A policy without a name in RoutingPolicyFromName gets its entry here.
struct Policy {
  std::string name;
  std::function<void(RouterCoreOptions*)> adjust_router;
  absl::Duration cache_interval = ReplayOptions().cache_interval;
  absl::Duration wire_delay = ReplayOptions().wire_delay;
};

// Returns the policy of this name. With the ending "-without-lag", the router learns at once what
// workers have cached.
Policy PolicyFromName(absl::string_view name) {
  constexpr absl::string_view kWithoutLag = "-without-lag";
  Policy policy{.name = std::string(name)};
  if (absl::ConsumeSuffix(&name, kWithoutLag)) {
    policy.cache_interval = policy.wire_delay = absl::ZeroDuration();
  }
  const absl::StatusOr<RoutingPolicyKind> kind = RoutingPolicyFromName(name);
  BATON_CHECK(kind.ok()) << kind.status();
  policy.adjust_router = [kind = *kind](RouterCoreOptions* router) { router->policy = kind; };
  return policy;
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

// Compares policies on a recorded trace, and prints a line for each of them and each size of the
// prefill pools. Environment:
//   BATON_TRACE           file with the trace
//   BATON_TRACE_POLICIES  names of policies, in place of all
//   BATON_TRACE_POOLS     sizes of all prefill pools together, as shares of the trace's blocks
//   BATON_TRACE_BUSY      share of time in which least-loaded keeps the prefill workers busy
//   BATON_TRACE_SPEED     seconds of the trace in one simulated second
//   BATON_TRACE_ROWS      number of rows to replay, from the first
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
  const double busy = std::stod(Setting("BATON_TRACE_BUSY", "0.8"));
  std::cout << trace->rows.size() << " requests, " << blocks << " blocks, " << findable
            << " found by one unlimited cache; " << options.speed << " times faster\n";

  for (const std::string& pool :
       std::vector<std::string>(absl::StrSplit(Setting("BATON_TRACE_POOLS", "0.2,0.5,1"), ','))) {
    options.prefill_blocks =
        static_cast<int>(std::stod(pool) * static_cast<double>(blocks) / options.prefill_workers);
    options.adjust_router = PolicyFromName("least-loaded").adjust_router;
    options.prefill_per_token = TimePerTokenFor(busy, *trace, options);
    std::cout << "pools of " << pool << ", 4 x " << options.prefill_blocks
              << " blocks; prefill takes " << options.prefill_per_token << " per token\n";
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(
             Setting("BATON_TRACE_POLICIES", "prefix,prefix-without-lag,least-loaded,round-robin"),
             ','))) {
      const Policy policy = PolicyFromName(name);
      ReplayOptions with = options;
      with.adjust_router = policy.adjust_router;
      with.cache_interval = policy.cache_interval;
      with.wire_delay = policy.wire_delay;
      const ReplayResult result = Replay(*trace, with);
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
  }
}

}  // namespace
}  // namespace baton
