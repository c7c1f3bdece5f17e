#include "tests/bench/shape_folder.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using nlohmann::json;

struct Shape {
  int hidden, layers, intermediate, heads, kv_heads, head_dim, vocab;
};

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements() const { return shape[0] * (shape.size() == 2 ? shape[1] : 1); }
};

std::vector<TensorToWrite> TensorsOf(const Shape& s) {
  const int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  std::vector<TensorToWrite> tensors = {{"model.embed_tokens.weight", {s.vocab, s.hidden}},
                                        {"model.norm.weight", {s.hidden}}};
  for (int i = 0; i < s.layers; ++i) {
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      tensors.push_back({absl::StrCat("model.layers.", i, ".", name, ".weight"), std::move(shape)});
    };
    add("input_layernorm", {s.hidden});
    add("post_attention_layernorm", {s.hidden});
    add("self_attn.q_proj", {queries, s.hidden});
    add("self_attn.k_proj", {keys, s.hidden});
    add("self_attn.v_proj", {keys, s.hidden});
    add("self_attn.o_proj", {s.hidden, queries});
    add("mlp.gate_proj", {s.intermediate, s.hidden});
    add("mlp.up_proj", {s.intermediate, s.hidden});
    add("mlp.down_proj", {s.hidden, s.intermediate});
  }
  return tensors;
}

uint16_t Bf16(float x) {
  uint32_t bits;
  static_assert(sizeof(bits) == sizeof(x));
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// Norms are one; the others normal, so that activations stay of one size. Drawn from a table: a
// billion draws would take a minute.
void WriteTensor(const TensorToWrite& tensor, const std::vector<uint16_t>& normal,
                 std::mt19937_64* random, std::ofstream* file) {
  std::vector<uint16_t> values(1 << 16);
  for (int64_t done = 0; done < tensor.elements();) {
    const int64_t count = std::min<int64_t>(values.size(), tensor.elements() - done);
    for (int64_t i = 0; i < count; i += 4) {
      const uint64_t bits = (*random)();
      for (int64_t j = i; j < std::min(i + 4, count); ++j) {
        values[j] = tensor.shape.size() == 1 ? Bf16(1) : normal[bits >> (16 * (j - i)) & 0xffff];
      }
    }
    file->write(reinterpret_cast<const char*>(values.data()), count * 2);
    done += count;
  }
}

}  // namespace

absl::Status MakeShapeFolder(absl::string_view name, const std::string& folder) {
  Shape s;
  if (name == "100m") {
    s = {768, 12, 2048, 12, 4, 64, 32000};
  } else if (name == "1b") {
    s = {2048, 16, 8192, 32, 8, 64, 128256};
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--shape is '", name, "'; there are 100m and 1b"));
  }
  std::error_code error;
  if (std::filesystem::exists(folder + "/config.json", error)) return absl::OkStatus();
  std::filesystem::create_directories(folder, error);
  const std::vector<TensorToWrite> tensors = TensorsOf(s);
  json header;
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const int64_t end = offset + 2 * tensor.elements();
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  const std::string text = header.dump();
  std::ofstream weights(folder + "/model.safetensors", std::ios::binary);
  const uint64_t size = text.size();
  weights.write(reinterpret_cast<const char*>(&size), sizeof(size));
  weights << text;
  std::mt19937_64 random(1);
  std::normal_distribution<float> draw(0, 1 / std::sqrt(static_cast<float>(s.hidden)));
  std::vector<uint16_t> normal(1 << 16);
  for (uint16_t& value : normal) value = Bf16(draw(random));
  for (const TensorToWrite& tensor : tensors) WriteTensor(tensor, normal, &random, &weights);
  weights.close();
  const std::string tokenizer = folder + "/tokenizer.json";
  std::filesystem::copy_file(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json", tokenizer,
                             std::filesystem::copy_options::overwrite_existing, error);
  if (error) return absl::UnavailableError(absl::StrCat(tokenizer, ": ", error.message()));
  // Last: a folder without it is begun again.
  std::ofstream config(folder + "/config.json");
  config << json{{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"hidden_size", s.hidden},
                 {"num_hidden_layers", s.layers},
                 {"intermediate_size", s.intermediate},
                 {"num_attention_heads", s.heads},
                 {"num_key_value_heads", s.kv_heads},
                 {"head_dim", s.head_dim},
                 {"vocab_size", s.vocab},
                 {"max_position_embeddings", 8192},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 500000.0},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"mlp_bias", false},
                 {"tie_word_embeddings", true},
                 {"torch_dtype", "bfloat16"}}
                .dump(1);
  config.close();
  if (!weights || !config) return absl::UnavailableError(absl::StrCat("can't write ", folder));
  return absl::OkStatus();
}

}  // namespace baton
