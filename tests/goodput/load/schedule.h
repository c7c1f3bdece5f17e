#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/traces/prompt_file.h"
#include "tests/goodput/traces/trace.h"

namespace baton {

struct PlannedRequest {
  double at_s = 0;             // from the start of the load, whole microseconds
  uint32_t prompt_tokens = 0;  // 0: a text, whose length is told when it is accepted
  uint32_t output_tokens = 0;
  uint32_t row = 0;   // of the trace or prompt file; the first one is the seed's
  uint32_t pass = 0;  // how often this row was sent before
};

// Everything a load will send, settled before its first request leaves: the same spec and context
// give the same schedule, bit for bit.
struct Schedule {
  static constexpr size_t kMostRequests = 1'000'000;
  std::vector<PlannedRequest> requests;  // in order of time; tail included
  double window_begin_s = 0, window_end_s = 0;
  uint32_t first_measured = 0, end_measured = 0;  // indices of those in the window
  Trace trace;                                    // if the spec names one
  std::vector<FilePrompt> prompts;                // if the spec names a file of them
  uint32_t block_tokens = Trace::kBlockTokens;    // of the trace's blocks, scaled
  std::vector<std::string> remarks;               // what was cut, a trace repeated, a rate far off
};

// The token ids of a text. Unimplemented: nobody can tell.
using TextTokens = std::function<absl::StatusOr<std::vector<int32_t>>(const std::string& text)>;

// Prompt and answer together are cut to `context_tokens`: the answer to half of it, then the prompt
// to what is left. InvalidArgument: the spec, a trace or a prompt file can't be used, or there
// would be more than a million requests. OutOfRange: none falls into the window; by another seed
// one may. `tokens_of` is asked once for each text of a prompt file that the load sends, and what
// else it fails with is passed on; without it texts have no length, and are not cut.
absl::StatusOr<Schedule> MakeSchedule(const LoadSpec& spec, uint32_t context_tokens,
                                      const TextTokens& tokens_of = nullptr);

}  // namespace baton
