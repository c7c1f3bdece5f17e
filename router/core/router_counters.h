#pragma once

#include <cstdint>

namespace baton {

// Counts of what the router core did since it was made, for metrics, logs and tests.
struct RouterCounters {
  uint64_t arrived = 0;
  uint64_t finished_ok = 0;
  uint64_t finished_error = 0;
  uint64_t shed = 0;              // Requests refused because the workers had too much to do.
  uint64_t colocated = 0;         // Prompts given to decode workers.
  uint64_t migrations = 0;        // Requests sent back to prefill.
  uint64_t outgrown = 0;          // Requests sent back to prefill at the end of their rotary table.
  uint64_t data_loss = 0;         // Legs that failed with DataLoss or broke the protocol.
  uint64_t diverged = 0;          // Requests failed because one position had two tokens.
  uint64_t prefill_refused = 0;   // ResourceExhausted from prefill workers.
  uint64_t decode_refused = 0;    // ResourceExhausted from decode workers.
  uint64_t identity_changes = 0;  // Changes of the served identity.
};

}  // namespace baton
