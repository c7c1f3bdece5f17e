#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct FilePrompt {
  std::string text;            // UTF-8, not empty.
  uint32_t output_tokens = 0;  // 0: the file does not say.
  // The members below are never set from a file, but by code that can ask a router.
  uint32_t tokens = 0;             // Tokens of the text; 0: not counted.
  std::vector<int32_t> token_ids;  // Set only if the text may have to be cut.
};

// Reads a file with one text per line. If the first byte is {, each line is a JSON object {"text":
// "...", "output_tokens": 50}, in which output_tokens may be left out. Empty lines are skipped.
// Returns NotFound, or InvalidArgument with "path:line: what".
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path);

}  // namespace baton
