#pragma once

#include <cstdint>

namespace baton {

// Snapshot of the load that a worker core reports (proto: LoadReport).
struct WorkerLoad {
  int running = 0;             // sequences in the current batch
  int waiting = 0;             // queued (prefill), or reserved and not yet running (decode)
  int64_t waiting_tokens = 0;  // prompt tokens that are still to be computed
  int free_blocks = 0;         // free KV blocks, those that only the prefix cache keeps included
  int cached_blocks = 0;       // free KV blocks that the prefix cache keeps
  int total_blocks = 0;
  bool draining = false;
  int leases = 0;      // hand-overs whose KV is kept for a reader (prefill)
  uint64_t steps = 0;  // forward passes since start
};

}  // namespace baton
