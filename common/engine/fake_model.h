#pragma once

#include "common/model/source/model_config.h"

namespace baton {

// Returns the smallest architecture that the fake backend can run.
inline ModelConfig FakeModelConfig(int vocab = 256, int context = 4096) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.layers = 2;
  config.hidden = 4;
  config.intermediate = 4;
  config.heads = 2;
  config.kv_heads = 2;
  config.head_dim = 2;
  config.vocab = vocab;
  config.context = context;
  config.rms_epsilon = 1e-5f;
  config.rope.dims = 2;
  config.tied_embeddings = true;
  return config;
}

// Returns FakeModelConfig with two rotary tables: one for sequences of up to `original_context`
// tokens, and one for longer sequences.
inline ModelConfig FakeLongRopeConfig(int original_context, int vocab = 256, int context = 4096) {
  ModelConfig config = FakeModelConfig(vocab, context);
  config.rope.type = RopeConfig::Type::kLongRope;
  config.rope.original_context = original_context;
  config.rope.short_factor = {1};
  config.rope.long_factor = {4};
  return config;
}

}  // namespace baton
