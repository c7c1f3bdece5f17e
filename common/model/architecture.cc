#include "common/model/architecture.h"

#include "common/base/check.h"

namespace baton {
namespace {

// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), as transformers names the weights.
constexpr LayerTensor kLlamaLayer[] = {
    {"input_layernorm.weight", Extent::kOne, Extent::kHidden, &LayerWeights::attention_norm},
    {"self_attn.q_proj.weight", Extent::kQueries, Extent::kHidden, &LayerWeights::q},
    {"self_attn.k_proj.weight", Extent::kKeys, Extent::kHidden, &LayerWeights::k},
    {"self_attn.v_proj.weight", Extent::kKeys, Extent::kHidden, &LayerWeights::v},
    {"self_attn.o_proj.weight", Extent::kHidden, Extent::kQueries, &LayerWeights::o},
    {"self_attn.q_proj.bias", Extent::kOne, Extent::kQueries, &LayerWeights::q_bias,
     &ModelConfig::attention_bias},
    {"self_attn.k_proj.bias", Extent::kOne, Extent::kKeys, &LayerWeights::k_bias,
     &ModelConfig::attention_bias},
    {"self_attn.v_proj.bias", Extent::kOne, Extent::kKeys, &LayerWeights::v_bias,
     &ModelConfig::attention_bias},
    {"self_attn.o_proj.bias", Extent::kOne, Extent::kHidden, &LayerWeights::o_bias,
     &ModelConfig::attention_bias},
    {"post_attention_layernorm.weight", Extent::kOne, Extent::kHidden, &LayerWeights::mlp_norm},
    {"mlp.gate_proj.weight", Extent::kIntermediate, Extent::kHidden, &LayerWeights::gate},
    {"mlp.up_proj.weight", Extent::kIntermediate, Extent::kHidden, &LayerWeights::up},
    {"mlp.down_proj.weight", Extent::kHidden, Extent::kIntermediate, &LayerWeights::down},
    {"mlp.gate_proj.bias", Extent::kOne, Extent::kIntermediate, &LayerWeights::gate_bias,
     &ModelConfig::mlp_bias},
    {"mlp.up_proj.bias", Extent::kOne, Extent::kIntermediate, &LayerWeights::up_bias,
     &ModelConfig::mlp_bias},
    {"mlp.down_proj.bias", Extent::kOne, Extent::kHidden, &LayerWeights::down_bias,
     &ModelConfig::mlp_bias},
};

constexpr Architecture kArchitectures[] = {
    {.name = "LlamaForCausalLM",
     .embedding = "model.embed_tokens.weight",
     .layer_prefix = "model.layers.",
     .layer = kLlamaLayer,
     .final_norm = "model.norm.weight",
     .head = "lm_head.weight",
     .derived_suffix = ".rotary_emb.inv_freq"},
};

}  // namespace

int SizeOf(Extent extent, const ModelConfig& config) {
  switch (extent) {
    case Extent::kOne:
      return 1;
    case Extent::kHidden:
      return config.hidden;
    case Extent::kQueries:
      return config.heads * config.head_dim;
    case Extent::kKeys:
      return config.kv_heads * config.head_dim;
    case Extent::kIntermediate:
      return config.intermediate;
    case Extent::kVocab:
      return config.vocab;
  }
  BATON_CHECK(false) << static_cast<int>(extent);
  return 0;
}

const Architecture& ArchitectureOf(const ModelConfig& config) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == config.architecture) return architecture;
  }
  BATON_CHECK(false) << "no description of " << config.architecture;
  return kArchitectures[0];
}

}  // namespace baton
