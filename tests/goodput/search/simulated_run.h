#pragma once

#include <string>

#include "tests/goodput/results/record.h"

namespace baton {

// The parameters of a simulated load, for tests. A queueing model of two workers answers the
// requests; its results depend on `seed` alone. In the mode disaggregated, one worker computes
// prompts in order and the other decodes, slower per token the more sequences it has. In colocated,
// each worker does both, and a prompt delays the tokens computed at the same time. In auto, the
// prompt length decides between the two.
struct SimulatedLoad {
  std::string mode = "disaggregated";
  double rate = 4;  // In requests/s.
  uint64_t seed = 1;
  double window_s = 30;
  SloTargets targets = {.name = "chat", .ttft_s = 0.4, .tpot_s = 0.05};
  uint32_t prompt_tokens = 400;  // Mean prompt length in tokens.
  uint32_t output_tokens = 40;
};
RunResult SimulatedRun(const SimulatedLoad& load);

}  // namespace baton
