#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace baton {

// `rope_type: llama3` of config.json: frequencies below a wavelength stay, above another are
// divided, between them blended (Llama 3.1 model card; transformers, modeling_rope_utils).
struct Llama3RopeScaling {
  float factor = 1;
  float low_freq_factor = 1;
  float high_freq_factor = 4;
  int original_context = 8192;  // tokens
};

// What generation_config.json says when a request does not. A missing `do_sample` means greedy, as
// in transformers.
struct GenerationDefaults {
  float temperature = 0;
  float top_p = 1;
  int top_k = 0;
  float min_p = 0;
  std::vector<TokenId> end_tokens;  // any of them ends the answer
};

// The architecture of one model, from config.json. Text-free and kernel-free: the router reads it
// too.
struct ModelConfig {
  std::string architecture;  // LlamaForCausalLM
  int layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int context = 0;  // max_position_embeddings, tokens
  float rms_epsilon = 0;
  float rope_theta = 0;
  std::optional<Llama3RopeScaling> rope_scaling;
  bool tied_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  GenerationDefaults generation;
};

// Reads and checks config.json and, where present, generation_config.json in `folder`. NotFound for
// no such file; InvalidArgument names file, key, what was found and what can be.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

// inverse_frequency of every pair of a head, [head_dim / 2], scaling applied.
std::vector<float> RopeInverseFrequency(const ModelConfig& config);

}  // namespace baton
