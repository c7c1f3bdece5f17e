#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct FilePrompt {
  std::string text;            // UTF-8, not empty
  uint32_t output_tokens = 0;  // 0: not told
  // Filled by whoever can ask a router; never by a file.
  uint32_t tokens = 0;             // of the text; 0: not counted
  std::vector<int32_t> token_ids;  // only of one that may have to be cut
};

// A text a line; or, when the first byte is {, a JSON object a line: {"text": "...",
// "output_tokens": 50}, of which the number may be left out. Empty lines are skipped. NotFound, or
// InvalidArgument with "path:line: what".
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path);

}  // namespace baton
