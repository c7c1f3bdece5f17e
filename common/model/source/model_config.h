#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/model/source/generation_config.h"
#include "common/model/source/rope_config.h"

namespace baton {

// The architecture of one model, from config.json. This header needs neither the tokenizer nor
// kernels, because the router includes it too.
struct ModelConfig {
  std::string architecture;  // one of the names in model_family.h
  int layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int context = 0;  // in tokens: max_position_embeddings, extended by rope scaling
  float rms_epsilon = 0;
  RopeConfig rope;
  // Attention window of each layer: number of tokens that a token sees, itself included; 0 means
  // all tokens. Empty if every layer sees all tokens.
  std::vector<int> windows;
  bool tied_embeddings = false;
  // True if the attention projections have biases. Only for some families does config.json say
  // this.
  bool attention_bias = false;
  bool mlp_bias = false;
  // ReadModelConfig sets only the end tokens. ReadGenerationConfig reads the rest.
  GenerationDefaults generation;
  // Warnings for the log, one for each file with settings that Baton ignores. A warning names the
  // file and all of these keys.
  std::vector<std::string> warnings;

  bool operator==(const ModelConfig&) const = default;
};

// Reads and checks config.json in `folder`. Returns NotFound if config.json does not exist. Returns
// InvalidArgument for a wrong value; the message names the file, the key, the value found, and the
// allowed values.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace baton
