#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// One request of a recorded trace.
struct TraceRow {
  double at_s = 0;  // Arrival, in seconds from the first row.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // Ids of the prompt's blocks, in order. Equal ids mean equal tokens.
  std::vector<uint64_t> blocks;
};

struct Trace {
  static constexpr uint32_t kBlockTokens = 512;  // Tokens per block in Mooncake's hash_ids.
  std::vector<TraceRow> rows;                    // All rows of the trace, in order of time.
  // Returns the seconds after which the trace repeats: its length plus the mean gap between rows.
  double Period() const;
  double Rate() const { return static_cast<double>(rows.size()) / Period(); }
};

// Reads a trace in one of two public formats, which differ in their first byte:
//   Azure (Patel et al., ISCA 2024): CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens,
//   times as YYYY-MM-DD HH:MM:SS.fffffff
//   Mooncake (Qin et al., FAST 2025): one JSON object per line with timestamp (milliseconds),
//   input_length, output_length and hash_ids, one id per 512 prompt tokens
// Returns NotFound, or InvalidArgument with "path:line: what".
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace baton
