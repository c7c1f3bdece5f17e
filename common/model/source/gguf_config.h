#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/gguf_parts.h"
#include "common/model/source/model_config.h"

namespace baton {

// Reads the settings of a model of one of the families `llama` (Llama, Mistral, SmolLM), `qwen2`,
// `qwen3` and `phi3` from a GGUF file, with its end tokens. The meaning of the keys is that of
// llama.cpp (docs/gguf.md of ggml, and llama-model.cpp), but where llama.cpp ignores what the
// original model does, the original counts: windows of phi3, and YaRN's attention factor. Returns
// InvalidArgument for another architecture and for a wrong value; the message names the file, the
// key, the value found, and the allowed values. Settings of the family that Baton does not know are
// named in the config's warnings.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufParts& parts);

// Reads the defaults for requests (general.sampling.*) into config->generation. Errors and warnings
// are as above.
absl::Status ReadGgufDefaults(const GgufFile& file, ModelConfig* config);

// Returns true if llama.cpp takes a token of this text for the end of an answer, whatever the file
// says about it (llama-vocab.cpp).
bool IsEndText(absl::string_view text);

// Returns true for the tensors that ReadGgufConfig reads: divisors of rotary frequencies.
bool IsRopeFactors(absl::string_view name);

// Returns the name that transformers gives to a tensor of a GGUF file, or an empty text if no model
// of the families above has such a tensor. `config` is the file's.
std::string NameOfGgufTensor(const ModelConfig& config, absl::string_view name);

}  // namespace baton
