#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/source/chat_texts.h"
#include "common/model/source/checkpoint.h"
#include "common/model/source/model_config.h"

namespace baton {

// A tokeniser as the text of a tokenizer.json.
struct TokenizerText {
  std::string json;
  std::string place;  // The name of the text in messages: the file, or what in it.
};

// A model as it was published: a Hugging Face folder or a GGUF file. A worker reads the weights,
// the router everything else. Each function reads its part of the files only when it is called.
// Messages of errors name the file, the key or tensor, what was found and what was expected.
class ModelSource {
 public:
  // Opens the folder or file at `path`. Returns InvalidArgument for a damaged GGUF file, and the
  // errors of MappedFile::Open. A folder is not looked at yet.
  static absl::StatusOr<std::unique_ptr<const ModelSource>> Open(const std::string& path);
  virtual ~ModelSource() = default;

  // Reads the settings: the architecture and the end tokens. Returns InvalidArgument for a wrong
  // value, and NotFound for a folder without config.json.
  virtual absl::StatusOr<ModelConfig> ReadConfig() const = 0;
  // Reads the defaults for requests into config->generation, and the warnings about them into
  // config->warnings. Returns InvalidArgument for a wrong value.
  virtual absl::Status ReadDefaults(ModelConfig* config) const = 0;
  // Returns the file that the defaults for requests come from.
  virtual std::string DefaultsFile() const = 0;
  // Opens the tensors, under the names that transformers gives them. `config` is ReadConfig()'s.
  // Returns NotFound if there are none.
  virtual absl::StatusOr<Checkpoint> OpenCheckpoint(const ModelConfig& config) const = 0;
  // Returns NotFound for a folder without tokenizer.json, and InvalidArgument for a GGUF file whose
  // tokeniser is damaged or of another kind. What a tokenizer.json says is not checked here.
  virtual absl::StatusOr<TokenizerText> ReadTokenizer() const = 0;
  // Reads no templates if there are none. Returns InvalidArgument for malformed JSON.
  virtual absl::StatusOr<ChatTexts> ReadChatTexts() const = 0;
};

}  // namespace baton
