#include "tests/routing/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/goodput/traces/random_stream.h"
#include "tests/sim/sim_cluster.h"

namespace baton {
namespace {

constexpr int kBlockTokens = 16;
constexpr uint32_t kScale = Trace::kBlockTokens / kBlockTokens;
constexpr int kVocab = 256;

// Returns the context that the longest request of the trace needs.
int ContextFor(const Trace& trace) {
  uint32_t longest = 0;
  for (const TraceRow& row : trace.rows) {
    longest = std::max(longest, row.prompt_tokens / kScale + row.output_tokens / kScale + 2);
  }
  return static_cast<int>(longest + kBlockTokens) / kBlockTokens * kBlockTokens;
}

// Returns the value below which the share `share` of the sorted values lies.
absl::Duration Quantile(const std::vector<absl::Duration>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

void SpreadArrivals(Trace* trace) {
  constexpr double kStepSeconds = 3;
  std::vector<TraceRow>& rows = trace->rows;
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end].at_s == rows[first].at_s) ++end;
    const double gap_s = kStepSeconds / static_cast<double>(end - first);
    for (size_t i = first + 1; i < end; ++i) {
      rows[i].at_s += gap_s * static_cast<double>(i - first);
    }
  }
}

uint64_t DistinctBlocks(const Trace& trace) {
  std::set<uint64_t> blocks;
  for (const TraceRow& row : trace.rows) blocks.insert(row.blocks.begin(), row.blocks.end());
  return blocks.size();
}

uint64_t FindableBlocks(const Trace& trace) {
  std::set<uint64_t> cached;
  uint64_t found = 0;
  for (const TraceRow& row : trace.rows) {
    const auto full = row.blocks.begin() + row.prompt_tokens / Trace::kBlockTokens;
    found +=
        std::find_if(row.blocks.begin(), full, [&](uint64_t id) { return !cached.contains(id); }) -
        row.blocks.begin();
    cached.insert(row.blocks.begin(), full);
  }
  return found;
}

std::vector<TokenId> ScaledPrompt(const TraceRow& row, int vocab) {
  // A last block that is not full keeps at least one token, and never becomes full.
  const uint32_t full = row.prompt_tokens / Trace::kBlockTokens;
  const uint32_t rest = row.prompt_tokens % Trace::kBlockTokens;
  const uint32_t length = full * kBlockTokens + (rest == 0 ? 0 : std::max(1u, rest / kScale));
  std::vector<TokenId> prompt;
  prompt.reserve(length);
  for (const uint64_t block : row.blocks) {
    RandomStream random(/*seed=*/0, RandomStream::kBlocks, block);
    for (int i = 0; i < kBlockTokens && prompt.size() < length; ++i) {
      prompt.push_back(static_cast<TokenId>(random.Below(static_cast<uint32_t>(vocab))));
    }
  }
  return prompt;
}

ReplayResult Replay(const Trace& trace, const ReplayOptions& options) {
  SimCluster::Options sim;
  sim.routers = options.routers;
  sim.prefill_workers = options.prefill_workers;
  sim.decode_workers = options.decode_workers;
  sim.context = ContextFor(trace);
  sim.vocab = kVocab;
  sim.block_tokens = kBlockTokens;
  sim.prefill_blocks = options.prefill_blocks;
  // Decode workers should never be the reason why a prompt waits.
  sim.decode_blocks = 16384;
  sim.prefill_times.per_row = options.prefill_per_token;
  sim.wire_delay = options.wire_delay;
  sim.prefix_index_bytes = 64 << 20;
  sim.report_interval = options.report_interval / options.speed;
  sim.cache_interval = options.cache_interval;
  sim.max_cache_changes = 1024;
  sim.adjust_router = [&options](RouterCoreOptions* router) {
    router->routed_for = absl::Seconds(5) / options.speed;
    if (options.adjust_router) options.adjust_router(router);
  };
  SimCluster cluster(sim);

  std::mt19937_64 random(sim.seed);
  const absl::Time start = cluster.now();
  const auto at = [&](double trace_s) { return start + absl::Seconds(trace_s / options.speed); };
  std::vector<const SimClient*> clients;
  for (const TraceRow& row : trace.rows) {
    CheckedRequest request;
    request.request_id = absl::StrCat("r", clients.size());
    request.prompt = ScaledPrompt(row, kVocab);
    request.sampling.max_tokens = static_cast<int>(std::max(1u, row.output_tokens / kScale));
    request.arrival = at(row.at_s);
    // The simulator looks at every added client at each step of its clock. So a client is added
    // only just before it arrives.
    cluster.RunUntil(request.arrival - absl::Milliseconds(1));
    const int router = static_cast<int>(random() % static_cast<uint64_t>(options.routers));
    clients.push_back(cluster.Add(std::move(request), router));
  }
  const absl::Time end = at(trace.Period());
  cluster.RunUntil(end);
  ReplayResult result;
  result.prefill_busy = absl::FDivDuration(cluster.busy(v1::WORKER_ROLE_PREFILL),
                                           (end - start) * options.prefill_workers);
  cluster.RunUntilIdle(absl::Hours(10));

  uint64_t reported_tokens = 0;
  std::vector<absl::Duration> ttft;
  for (const SimClient* client : clients) {
    const std::string& id = client->request.request_id;
    if (!client->status || !client->status->ok() || client->tokens.empty()) {
      ADD_FAILURE() << id << ": " << client->status.value_or(absl::UnknownError("no end"));
      continue;
    }
    EXPECT_EQ(client->tokens, cluster.Expected(client->request)) << id;
    reported_tokens += client->summary->usage.cached_tokens;
    ttft.push_back(client->times.front() - client->request.arrival);
  }
  cluster.ExpectAllBack();
  EXPECT_EQ(reported_tokens, cluster.prefill_cached_tokens());
  result.cached_blocks = cluster.prefill_cached_tokens() / kBlockTokens;
  if (ttft.empty()) return result;
  std::sort(ttft.begin(), ttft.end());
  for (const absl::Duration one : ttft) result.mean_ttft += one / static_cast<double>(ttft.size());
  result.p50_ttft = Quantile(ttft, 0.5);
  result.p99_ttft = Quantile(ttft, 0.99);
  return result;
}

absl::Duration TimePerTokenFor(double share, const Trace& trace, ReplayOptions options) {
  // The busy share is nearly proportional to the time per token until the workers are always busy.
  for (int i = 0; i < 8 && !::testing::Test::HasFailure(); ++i) {
    const double busy = Replay(trace, options).prefill_busy;
    if (std::abs(busy - share) <= 0.01) break;
    options.prefill_per_token *= share / busy;
  }
  return options.prefill_per_token;
}

}  // namespace baton
