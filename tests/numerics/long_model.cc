#include "tests/numerics/long_model.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr int kLayers = 5, kHidden = 222, kIntermediate = 607, kVocab = 3001;
constexpr int kHeads = 9, kKvHeads = 3, kHeadDim = 26;

struct TensorToWrite {
  std::string name;
  std::vector<int> shape;
};

std::vector<TensorToWrite> Tensors() {
  std::vector<TensorToWrite> tensors = {{"model.embed_tokens.weight", {kVocab, kHidden}},
                                        {"model.norm.weight", {kHidden}},
                                        {"lm_head.weight", {kVocab, kHidden}}};
  for (int i = 0; i < kLayers; ++i) {
    const auto add = [&](const char* name, std::vector<int> shape) {
      tensors.push_back({absl::StrCat("model.layers.", i, ".", name, ".weight"), std::move(shape)});
    };
    add("input_layernorm", {kHidden});
    add("post_attention_layernorm", {kHidden});
    add("self_attn.q_norm", {kHeadDim});
    add("self_attn.k_norm", {kHeadDim});
    add("self_attn.q_proj", {kHeads * kHeadDim, kHidden});
    add("self_attn.k_proj", {kKvHeads * kHeadDim, kHidden});
    add("self_attn.v_proj", {kKvHeads * kHeadDim, kHidden});
    add("self_attn.o_proj", {kHidden, kHeads * kHeadDim});
    add("mlp.gate_proj", {kIntermediate, kHidden});
    add("mlp.up_proj", {kIntermediate, kHidden});
    add("mlp.down_proj", {kHidden, kIntermediate});
  }
  return tensors;
}

json Config(DType type, bool dynamic_rope) {
  json layer_types = json::array();
  for (int i = 0; i < kLayers; ++i) {
    layer_types.push_back(i % 2 == 0 ? "full_attention" : "sliding_attention");
  }
  json config = {{"architectures", {"Qwen3ForCausalLM"}},
                 {"model_type", "qwen3"},
                 {"hidden_size", kHidden},
                 {"num_hidden_layers", kLayers},
                 {"intermediate_size", kIntermediate},
                 {"num_attention_heads", kHeads},
                 {"num_key_value_heads", kKvHeads},
                 {"head_dim", kHeadDim},
                 {"vocab_size", kVocab},
                 {"max_position_embeddings", 4096},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 10000.0},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"use_sliding_window", true},
                 {"sliding_window", 300},
                 {"layer_types", layer_types},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", type == DType::kBF16 ? "bfloat16" : "float32"}};
  if (dynamic_rope) {
    config["max_position_embeddings"] = 256;
    config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 16.0}};
  }
  return config;
}

void Write(const ScratchFolder& folder, DType type, bool dynamic_rope) {
  std::mt19937 random(20261121);
  std::normal_distribution<float> normal;
  json header;
  std::string data;
  for (const TensorToWrite& tensor : Tensors()) {
    const size_t begin = data.size();
    const bool matrix = tensor.shape.size() == 2, narrow = matrix && type == DType::kBF16;
    const int count = tensor.shape[0] * (matrix ? tensor.shape[1] : 1);
    const float spread = 1 / std::sqrt(static_cast<float>(tensor.shape.back()));
    for (int i = 0; i < count; ++i) {
      const float value = matrix ? spread * normal(random) : 1 + 0.2f * normal(random);
      char bytes[sizeof(value)];
      std::memcpy(bytes, &value, sizeof(value));
      data.append(narrow ? bytes + 2 : bytes, narrow ? 2 : 4);
    }
    header[tensor.name] = {{"dtype", narrow ? "BF16" : "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  const absl::string_view length(reinterpret_cast<const char*>(&size), sizeof(size));
  folder.Write("model.safetensors", absl::StrCat(length, text, data));
  folder.Write("config.json", Config(type, dynamic_rope).dump());
}

}  // namespace

std::string LongModelFolder(DType type, bool dynamic_rope) {
  static std::map<std::pair<DType, bool>, ScratchFolder> folders;
  const auto [found, made] = folders.try_emplace({type, dynamic_rope});
  if (made) Write(found->second, type, dynamic_rope);
  return found->second.path();
}

}  // namespace baton
