#include "common/model/source/model_family.h"

namespace baton {

absl::Span<const ModelFamily> ModelFamilies() {
  using Windows = ModelFamily::Windows;
  static constexpr ModelFamily kFamilies[] = {
      {.architecture = "LlamaForCausalLM",
       .model_type = "llama",
       .attention_bias = true,
       .mlp_bias = true},
      {.architecture = "MistralForCausalLM",
       .model_type = "mistral",
       .kv_heads = 8,
       .windows = Windows::kEveryLayer,
       .window = 4096},
      {.architecture = "Qwen2ForCausalLM",
       .model_type = "qwen2",
       .kv_heads = 32,
       .windows = Windows::kLastLayers,
       .window = 4096},
      {.architecture = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .kv_heads = 32,
       .head_dim = 128,
       .attention_bias = true,
       .windows = Windows::kLastLayers,
       .window = 4096},
      {.architecture = "Phi3ForCausalLM",
       .model_type = "phi3",
       .rms_epsilon = 1e-5,
       .windows = Windows::kEveryLayer,
       .window = 0,
       .partial_rope = true,
       .original_context = 4096},
  };
  return kFamilies;
}

}  // namespace baton
