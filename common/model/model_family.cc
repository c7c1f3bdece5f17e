#include "common/model/model_family.h"

namespace baton {

absl::Span<const ModelFamily> ModelFamilies() {
  using Windows = ModelFamily::Windows;
  static constexpr ModelFamily kFamilies[] = {
      {.architecture = "LlamaForCausalLM", .attention_bias = true, .mlp_bias = true},
      {.architecture = "MistralForCausalLM",
       .kv_heads = 8,
       .windows = Windows::kEveryLayer,
       .window = 4096},
      {.architecture = "Qwen2ForCausalLM",
       .kv_heads = 32,
       .windows = Windows::kLastLayers,
       .window = 4096},
      {.architecture = "Qwen3ForCausalLM",
       .kv_heads = 32,
       .head_dim = 128,
       .attention_bias = true,
       .windows = Windows::kLastLayers,
       .window = 4096},
      {.architecture = "Phi3ForCausalLM",
       .rms_epsilon = 1e-5,
       .windows = Windows::kEveryLayer,
       .window = 0,
       .partial_rope = true,
       .original_context = 4096},
  };
  return kFamilies;
}

}  // namespace baton
