#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Returns the ids of the tokens that llama.cpp takes for special ones and for the end of an answer
// because of their texts (llama-vocab.cpp), in rising order. Of tokens with equal texts it has the
// first. Leaves out a </s> that is a word like any other by `kinds`, as in Qwen's vocabulary: the
// original model goes on after it. `kinds` is tokenizer.ggml.token_type, and may be shorter.
std::vector<TokenId> EndTokensByText(const std::vector<std::string>& tokens,
                                     const std::vector<int64_t>& kinds);

// Returns true for the tensors that ReadGgufConfig reads: divisors of rotary frequencies.
bool IsRopeFactors(absl::string_view name);

// Returns the name that transformers gives to a tensor of a GGUF file, or an empty text if the
// model has no such tensor. `config` is the file's.
std::string NameOfGgufTensor(const ModelConfig& config, absl::string_view name);

}  // namespace baton
