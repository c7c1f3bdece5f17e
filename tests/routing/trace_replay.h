#pragma once

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "router/core/router_core.h"
#include "tests/goodput/traces/trace.h"

// Replays a request trace of Mooncake's format on a simulated cluster, in which one block of the
// trace (512 tokens) is one KV block of 16 tokens. Lengths of answers are scaled alike.
namespace baton {

struct ReplayOptions {
  // Number of routers. Each request goes to a random one.
  int routers = 1;
  int prefill_workers = 4;
  int decode_workers = 4;
  int prefill_blocks = 0;  // KV blocks of each prefill worker
  // Seconds of the trace that pass in one simulated second.
  double speed = 10;
  // Simulated time that prefill workers take for one token.
  absl::Duration prefill_per_token = absl::Microseconds(200);
  // Time between two messages of a worker on its prefix cache.
  absl::Duration cache_interval = absl::Milliseconds(20);
  // Time of the trace between two load reports of a worker. Workers have this default too.
  absl::Duration report_interval = absl::Milliseconds(250);
  // Max delay of a message between two parties.
  absl::Duration wire_delay = absl::Milliseconds(1);
  // Sets the policy, and other options of each router.
  std::function<void(RouterCoreOptions*)> adjust_router;
};

struct ReplayResult {
  uint64_t cached_blocks = 0;  // blocks of prompts that prefill workers found in their caches
  // Share of the time of the trace in which prefill workers were busy, from 0 to 1.
  double prefill_busy = 0;
  absl::Duration mean_ttft, p50_ttft, p99_ttft;  // in simulated time
};

// Spreads requests with equal arrival times evenly over the 3 s that follow. The times in the
// conversation trace are whole multiples of about 3 s.
void SpreadArrivals(Trace* trace);

// Returns the number of different blocks in the trace.
uint64_t DistinctBlocks(const Trace& trace);
// Returns the number of full blocks of prompts that one unlimited cache without delay would find.
uint64_t FindableBlocks(const Trace& trace);

// Returns the prompt of a row: 16 tokens below `vocab` for each full block, which depend only on
// the block's id, and the last block's share of them. Returns at least one token.
std::vector<TokenId> ScaledPrompt(const TraceRow& row, int vocab);

// Sends the requests of all rows to a new cluster, and waits for their answers. Fails the test if a
// request fails or gets wrong tokens.
ReplayResult Replay(const Trace& trace, const ReplayOptions& options);

// Returns the time per token at which prefill workers are busy for `share` of the trace, within
// 0.01. Replays the trace a few times; `options` gives the first time to try.
absl::Duration TimePerTokenFor(double share, const Trace& trace, ReplayOptions options);

}  // namespace baton
