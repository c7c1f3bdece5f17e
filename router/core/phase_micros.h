#pragma once

#include <cstdint>

namespace baton {

// The time that each phase of a request took, in microseconds. Phases of repeated attempts add up.
struct PhaseMicros {
  uint64_t queue_us = 0;             // From arrival until a worker began to compute the prompt.
  uint64_t prefill_us = 0;           // Computing the prompt, until the first token is sampled.
  uint64_t handover_hidden_us = 0;   // Moving KV while the prefill worker still computed.
  uint64_t handover_exposed_us = 0;  // Moving KV after the first token was sampled.
  uint64_t decode_wait_us = 0;       // Waiting for a place in the batch, with complete KV.
  uint64_t decode_us = 0;            // From the first decode step to the last token.
  uint64_t ttft_us = 0;              // From arrival until the first token is sent to the client.
  uint64_t total_us = 0;             // From arrival until the end of the answer.
};

}  // namespace baton
