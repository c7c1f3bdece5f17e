#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct FilePrompt {
  std::string text;            // The prompt in UTF-8, not empty.
  uint32_t output_tokens = 0;  // Output tokens to ask for; 0: the file does not say.
  // The two fields below are not read from the file. Code that can ask a router sets them.
  uint32_t tokens = 0;  // Tokens of the text; 0: not counted.
  // Token ids of the text; set only if the text may have to be cut.
  std::vector<int32_t> token_ids;
};

// Reads a file with one text per line. If the first byte is {, each line is a JSON object {"text":
// "...", "output_tokens": 50}, in which output_tokens may be left out. Empty lines are skipped.
// Returns NotFound, or InvalidArgument with "path:line: what".
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path);

}  // namespace baton
