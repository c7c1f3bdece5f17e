#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct FilePrompt {
  std::string text;            // The prompt in UTF-8, not empty.
  uint32_t output_tokens = 0;  // Output tokens to ask for; 0: the file does not say.
  // The answer that was given to the prompt. If it is not empty, `output_tokens` is an estimate, a
  // quarter of its bytes, and code that can ask a server sets it to the answer's tokens.
  std::string answer;
  // The two fields below are not read from the file. Code that can ask a router sets them.
  uint32_t tokens = 0;  // Tokens of the text; 0: not counted.
  // Token ids of the text; set only if the text may have to be cut.
  std::vector<int32_t> token_ids;
};

// Reads a file with one text per line. If the first byte is {, each line is a JSON object {"text":
// "...", "output_tokens": 50}, in which output_tokens may be left out. Empty lines are skipped.
//
// If the file begins with [{, it is one JSON list in ShareGPT's form: [{"conversations": [{"from":
// "human", "value": "..."}, {"from": "gpt", "value": "..."}, ...]}, ...]. The first turn of a human
// is the prompt, and the turn of gpt that follows it is the answer. Conversations that have no such
// pair, or one with an empty text, are skipped; published files have many of them.
//
// Returns NotFound, or InvalidArgument with "path:line: what" or "path: conversation i: what".
absl::StatusOr<std::vector<FilePrompt>> ReadPromptFile(const std::string& path);

}  // namespace baton
