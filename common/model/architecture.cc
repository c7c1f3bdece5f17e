#include "common/model/architecture.h"

#include "common/base/check.h"

namespace baton {
namespace {

// Groups of layer weights, with the tensor names that transformers uses.

constexpr LayerTensor kNorms[] = {
    {"input_layernorm.weight", Extent::kOne, Extent::kHidden, &LayerWeights::attention_norm},
    {"post_attention_layernorm.weight", Extent::kOne, Extent::kHidden, &LayerWeights::mlp_norm},
};
constexpr LayerTensor kQkv[] = {
    {"self_attn.q_proj.weight", Extent::kQueries, Extent::kHidden, &LayerWeights::q},
    {"self_attn.k_proj.weight", Extent::kKeys, Extent::kHidden, &LayerWeights::k},
    {"self_attn.v_proj.weight", Extent::kKeys, Extent::kHidden, &LayerWeights::v},
};
constexpr LayerTensor kFusedQkv[] = {
    {"self_attn.qkv_proj.weight", Extent::kQueries, Extent::kHidden, &LayerWeights::q},
    {"self_attn.qkv_proj.weight", Extent::kKeys, Extent::kHidden, &LayerWeights::k},
    {"self_attn.qkv_proj.weight", Extent::kKeys, Extent::kHidden, &LayerWeights::v},
};
constexpr LayerTensor kQkvBias[] = {
    {"self_attn.q_proj.bias", Extent::kOne, Extent::kQueries, &LayerWeights::q_bias},
    {"self_attn.k_proj.bias", Extent::kOne, Extent::kKeys, &LayerWeights::k_bias},
    {"self_attn.v_proj.bias", Extent::kOne, Extent::kKeys, &LayerWeights::v_bias},
};
constexpr LayerTensor kQkNorm[] = {
    {"self_attn.q_norm.weight", Extent::kOne, Extent::kHead, &LayerWeights::q_norm},
    {"self_attn.k_norm.weight", Extent::kOne, Extent::kHead, &LayerWeights::k_norm},
};
constexpr LayerTensor kOutput[] = {
    {"self_attn.o_proj.weight", Extent::kHidden, Extent::kQueries, &LayerWeights::o},
};
constexpr LayerTensor kOutputBias[] = {
    {"self_attn.o_proj.bias", Extent::kOne, Extent::kHidden, &LayerWeights::o_bias},
};
constexpr LayerTensor kMlp[] = {
    {"mlp.gate_proj.weight", Extent::kIntermediate, Extent::kHidden, &LayerWeights::gate},
    {"mlp.up_proj.weight", Extent::kIntermediate, Extent::kHidden, &LayerWeights::up},
    {"mlp.down_proj.weight", Extent::kHidden, Extent::kIntermediate, &LayerWeights::down},
};
constexpr LayerTensor kFusedMlp[] = {
    {"mlp.gate_up_proj.weight", Extent::kIntermediate, Extent::kHidden, &LayerWeights::gate},
    {"mlp.gate_up_proj.weight", Extent::kIntermediate, Extent::kHidden, &LayerWeights::up},
    {"mlp.down_proj.weight", Extent::kHidden, Extent::kIntermediate, &LayerWeights::down},
};
constexpr LayerTensor kMlpBias[] = {
    {"mlp.gate_proj.bias", Extent::kOne, Extent::kIntermediate, &LayerWeights::gate_bias},
    {"mlp.up_proj.bias", Extent::kOne, Extent::kIntermediate, &LayerWeights::up_bias},
    {"mlp.down_proj.bias", Extent::kOne, Extent::kHidden, &LayerWeights::down_bias},
};

// The weights of Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024).
constexpr LayerTensors kLlama[] = {{kNorms},
                                   {kQkv},
                                   {kQkvBias, &ModelConfig::attention_bias},
                                   {kOutput},
                                   {kOutputBias, &ModelConfig::attention_bias},
                                   {kMlp},
                                   {kMlpBias, &ModelConfig::mlp_bias}};
// The weights of Mistral (Jiang et al. 2023).
constexpr LayerTensors kMistral[] = {{kNorms}, {kQkv}, {kOutput}, {kMlp}};
// The weights of Qwen2 (Qwen team 2024).
constexpr LayerTensors kQwen2[] = {{kNorms}, {kQkv}, {kQkvBias}, {kOutput}, {kMlp}};
// The weights of Qwen3 (Qwen team 2025).
constexpr LayerTensors kQwen3[] = {
    {kNorms},  {kQkv},    {kQkvBias, &ModelConfig::attention_bias},
    {kQkNorm}, {kOutput}, {kOutputBias, &ModelConfig::attention_bias},
    {kMlp}};
// The weights of Phi-3 (Abdin et al. 2024).
constexpr LayerTensors kPhi3[] = {{kNorms}, {kFusedQkv}, {kOutput}, {kFusedMlp}};

constexpr Architecture kArchitectures[] = {
    {.name = "LlamaForCausalLM", .layer = kLlama},
    {.name = "MistralForCausalLM", .layer = kMistral},
    {.name = "Qwen2ForCausalLM", .layer = kQwen2},
    {.name = "Qwen3ForCausalLM", .layer = kQwen3},
    {.name = "Phi3ForCausalLM", .layer = kPhi3},
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
    case Extent::kHead:
      return config.head_dim;
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
