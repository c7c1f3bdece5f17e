#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// One request of a recorded trace.
struct TraceRow {
  double at_s = 0;  // from the first row
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  std::vector<uint64_t> blocks;  // ids of the prompt's blocks, in order; equal ids, equal tokens
};

struct Trace {
  static constexpr uint32_t kBlockTokens = 512;  // of Mooncake's hash_ids
  std::vector<TraceRow> rows;                    // in order of time
  // Seconds until the trace would begin again: its length and one mean gap.
  double Period() const;
  double Rate() const { return static_cast<double>(rows.size()) / Period(); }
};

// Reads one of the two public forms, told apart by their first byte:
//   Azure (Patel et al., ISCA 2024): CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens,
//   times as YYYY-MM-DD HH:MM:SS.fffffff
//   Mooncake (Qin et al., FAST 2025): a JSON object a line with timestamp (milliseconds),
//   input_length, output_length and hash_ids, one id per 512 prompt tokens
// NotFound, or InvalidArgument with "path:line: what".
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace baton
