#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

class GgufFile;

// The chat templates of a model, and the special tokens that they use, as texts.
struct ChatTexts {
  std::map<std::string, std::string> templates;  // Keyed by name: "default", "tool_use", ...
  // Special tokens that templates know by name, such as bos_token.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

// Name of the template that is used unless a request needs another one.
constexpr char kDefaultTemplate[] = "default";

// Reads them from a Hugging Face folder as transformers 5.24 does: chat_template.jinja and
// additional_chat_templates/*.jinja, or `chat_template` of tokenizer_config.json. Returns
// InvalidArgument if tokenizer_config.json is malformed.
absl::StatusOr<ChatTexts> ReadChatTexts(const std::string& folder);

// Returns those of a GGUF file. Texts that are not UTF-8 are left out.
ChatTexts ChatTextsOf(const GgufFile& file);

}  // namespace baton
