#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/model/rope_config.h"

namespace baton {

// What generation_config.json says when a request does not. A missing `do_sample` means greedy, as
// in transformers.
struct GenerationDefaults {
  float temperature = 0;
  float top_p = 1;
  int top_k = 0;
  float min_p = 0;
  std::vector<TokenId> end_tokens;  // any of them ends the answer
  float repetition_penalty = 1;
  int min_tokens = 0;  // min_new_tokens
  // bad_words_ids. As in transformers, an end token alone is none.
  std::vector<std::vector<TokenId>> bad_words;

  bool operator==(const GenerationDefaults&) const = default;
};

// The architecture of one model, from config.json. Text-free and kernel-free: the router reads it
// too.
struct ModelConfig {
  std::string architecture;  // a name of model_family.h
  int layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int context = 0;  // tokens: max_position_embeddings, or what rope scaling makes of it
  float rms_epsilon = 0;
  RopeConfig rope;
  // Of each layer, the tokens that one sees, itself included, 0 for all; empty when all see all.
  std::vector<int> windows;
  bool tied_embeddings = false;
  bool attention_bias = false;  // of all projections, where a family leaves it to config.json
  bool mlp_bias = false;
  GenerationDefaults generation;
  // What is in the files and is not done, for the log: sentences that name file, key and value.
  std::vector<std::string> warnings;

  bool operator==(const ModelConfig&) const = default;
};

// Reads and checks config.json and, where present, generation_config.json in `folder`. NotFound for
// no such file; InvalidArgument names file, key, what was found and what can be.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace baton
