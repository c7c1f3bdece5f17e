#pragma once

#include <cstdint>

namespace baton {

// What a worker core reports about itself (proto: LoadReport). A snapshot.
struct WorkerLoad {
  int running = 0;             // sequences in the current batch
  int waiting = 0;             // queued (prefill), or promised and not yet running (decode)
  int64_t waiting_tokens = 0;  // prompt tokens that it is to compute and has not
  int free_blocks = 0;         // KV blocks that nobody holds
  int total_blocks = 0;
  bool draining = false;
  int leases = 0;      // hand-overs whose KV is kept for a reader (prefill)
  uint64_t steps = 0;  // forward passes since start
};

}  // namespace baton
