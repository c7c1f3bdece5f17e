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
  double at_s = 0;  // Seconds from the start of the load, in whole microseconds.
  // Length of the prompt; 0: the prompt is a text that has not been counted.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // Row of the trace or prompt file. The seed decides the row of the first request.
  uint32_t row = 0;
  uint32_t pass = 0;  // Number of times that the load used this row before.
};

// All requests of a load, fixed before the first one is sent. The same spec and context give the
// same schedule, bit for bit.
struct Schedule {
  static constexpr size_t kMaxRequests = 1'000'000;
  std::vector<PlannedRequest> requests;  // In order of time; the tail is included.
  double window_begin_s = 0, window_end_s = 0;
  // Indices of the measured requests, from first_measured to end_measured - 1.
  uint32_t first_measured = 0, end_measured = 0;
  Trace trace;                                  // Empty unless the spec names a trace.
  std::vector<FilePrompt> prompts;              // Empty unless the spec names a prompt file.
  uint32_t block_tokens = Trace::kBlockTokens;  // Tokens per block of the trace, after scaling.
  // Notes for the reader about lengths that were cut, a trace that repeats, or a rate far from the
  // given one.
  std::vector<std::string> remarks;
};

// Returns the token ids of a text. The error Unimplemented means that the router can't count
// tokens.
using TextTokens = std::function<absl::StatusOr<std::vector<int32_t>>(const std::string& text)>;

// Plans all requests of a load. Cuts an answer to at most half of `context_tokens`, and its prompt
// to the rest. `tokens_of` is called once for each text of a prompt file that the load sends. If it
// is null, texts have no length and are not cut.
//
// Returns InvalidArgument if the spec, a trace or a prompt file can't be used, or if there would be
// more than a million requests. Returns OutOfRange if no request falls into the window; the load
// may be valid with another seed. Passes on the errors of `tokens_of` other than Unimplemented.
absl::StatusOr<Schedule> MakeSchedule(const LoadSpec& spec, uint32_t context_tokens,
                                      const TextTokens& tokens_of = nullptr);

}  // namespace baton
