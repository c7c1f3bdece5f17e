#pragma once

#include <string>

#include "tests/goodput/results/record.h"

namespace baton {

// A load as two workers in a queueing model would answer it, for tests. Drawn from `seed` alone.
// Disaggregated: one worker computes prompts in order and the other decodes, slower per token the
// more sequences it has. Colocated: each worker does both, and a prompt delays the tokens computed
// at the same time. auto: one or the other, by prompt length.
struct SimulatedLoad {
  std::string mode = "disaggregated";
  double rate = 4;  // Requests/s.
  uint64_t seed = 1;
  double window_s = 30;
  SloTargets targets = {.name = "chat", .ttft_s = 0.4, .tpot_s = 0.05};
  uint32_t prompt_tokens = 400;  // Mean length.
  uint32_t output_tokens = 40;
};
RunResult SimulatedRun(const SimulatedLoad& load);

}  // namespace baton
