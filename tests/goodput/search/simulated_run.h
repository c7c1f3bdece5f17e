#pragma once

#include <string>

#include "tests/goodput/results/record.h"

namespace baton {

// For tests: a load as two workers in a queueing model would have answered it, drawn from `seed`
// alone. Disaggregated: one worker computes prompts in order, the other decodes, slower per token
// the more sequences it has. Colocated: each of two does both, and a prompt stretches the tokens
// beside it. auto: the one or the other, by prompt length.
struct SimulatedLoad {
  std::string mode = "disaggregated";
  double rate = 4;  // requests/s
  uint64_t seed = 1;
  double window_s = 30;
  SloTargets targets = {.name = "chat", .ttft_s = 0.4, .tpot_s = 0.05};
  uint32_t prompt_tokens = 400;  // on average
  uint32_t output_tokens = 40;
};
RunResult SimulatedRun(const SimulatedLoad& load);

}  // namespace baton
