#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat_renderer.h"
#include "common/model/source/model_config.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Everything that a router reads of a model: all but the weights.
struct ModelText {
  ModelConfig config;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatRenderer> chat;
  std::string name;           // ModelNameAt()
  std::string defaults_file;  // File that the defaults for requests come from.
};

// Reads a Hugging Face folder or a GGUF file. With `defaults`, reads the defaults for requests too.
// `chat_template` is the choice of ChatRenderer::Load. The message of an error begins with the flag
// that is at fault. Logs what is odd about a tokeniser.
absl::StatusOr<ModelText> OpenModelText(const std::string& path, bool defaults,
                                        const std::string& chat_template);

}  // namespace baton
