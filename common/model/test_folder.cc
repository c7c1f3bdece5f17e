#include "common/model/test_folder.h"

#include <bit>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/model/forward_pass.h"
#include "common/model/model.h"
#include "common/model/reference_backend.h"

namespace baton {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string LengthBytes(uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> 8 * i);
  return bytes;
}

// Returns values with few bits, which F32, F16 and BF16 hold exactly. So the type of a tensor does
// not change a result.
float Value(const std::string& name, uint64_t i) {
  const float value = static_cast<int>(Hash64(name, i) % 17) / 16.0f - 0.5f;
  return absl::StrContains(name, "norm") ? 1 + value / 2 : value;
}

std::string Encode(float value, const std::string& dtype) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == "F32") return std::string(reinterpret_cast<const char*>(&bits), 4);
  uint16_t half = bits >> 16;
  if (dtype == "F16") {
    const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
    half = value == 0 ? 0 : (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 1023);
  }
  return std::string(reinterpret_cast<const char*>(&half), 2);
}

}  // namespace

std::string TestData(absl::string_view name) {
  return absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata/", name);
}

void TestFolder::Remove(absl::string_view name) const {
  BATON_CHECK(std::filesystem::remove(File(name))) << File(name);
}

void TestFolder::CopyFrom(const std::string& folder) const {
  std::filesystem::copy(folder, path(), std::filesystem::copy_options::overwrite_existing);
}

void TestFolder::EditJson(absl::string_view name, const std::function<void(json&)>& edit) const {
  json value = json::parse(Read(name));
  edit(value);
  Write(name, value.dump());
}

void TestFolder::EditHeader(absl::string_view name,
                            const std::function<void(std::string&)>& edit) const {
  const std::string file = Read(name);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::string header = file.substr(8, length);
  edit(header);
  Write(name, absl::StrCat(LengthBytes(header.size()), header, file.substr(8 + length)));
}

std::string SafetensorsBytes(const std::vector<TestTensor>& tensors, int padding) {
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const TestTensor& tensor : tensors) {
    const size_t begin = data.size();
    uint64_t elements = 1;
    for (const int size : tensor.shape) elements *= size;
    for (uint64_t i = 0; i < elements; ++i) data += Encode(Value(tensor.name, i), tensor.dtype);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8 + padding, ' ');
  return absl::StrCat(LengthBytes(text.size()), text, data);
}

json TinyConfig() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"num_hidden_layers", 2},
          {"hidden_size", 4},
          {"intermediate_size", 6},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"vocab_size", 5},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"eos_token_id", 2}};
}

absl::StatusOr<ModelConfig> ReadTiny(const json& changes, const json& generation) {
  TestFolder folder;
  json config = TinyConfig();
  if (!changes.is_null()) config.merge_patch(changes);
  folder.Write("config.json", config.dump());
  if (!generation.is_null()) folder.Write("generation_config.json", generation.dump());
  ASSIGN_OR_RETURN(ModelConfig read, ReadModelConfig(folder.path()));
  RETURN_IF_ERROR(ReadGenerationConfig(folder.path(), &read));
  return read;
}

std::vector<TestTensor> TinyTensors(const std::string& matrix_dtype,
                                    const std::string& vector_dtype) {
  std::vector<TestTensor> tensors = {{"model.embed_tokens.weight", matrix_dtype, {5, 4}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const auto add = [&](const char* name, std::vector<int> shape) {
      tensors.push_back(
          {absl::StrCat(layer, name), shape.size() == 2 ? matrix_dtype : vector_dtype, shape});
    };
    add("input_layernorm.weight", {4});
    add("self_attn.q_proj.weight", {4, 4});
    add("self_attn.k_proj.weight", {2, 4});
    add("self_attn.v_proj.weight", {2, 4});
    add("self_attn.o_proj.weight", {4, 4});
    add("post_attention_layernorm.weight", {4});
    add("mlp.gate_proj.weight", {6, 4});
    add("mlp.up_proj.weight", {6, 4});
    add("mlp.down_proj.weight", {4, 6});
  }
  tensors.push_back({"model.norm.weight", vector_dtype, {4}});
  tensors.push_back({"lm_head.weight", matrix_dtype, {5, 4}});
  return tensors;
}

void WriteTinyModel(const TestFolder& folder) {
  folder.Write("config.json", TinyConfig().dump());
  folder.Write("model.safetensors", SafetensorsBytes(TinyTensors()));
}

void ShardTinyModel(const TestFolder& folder) {
  auto first = TinyTensors();
  const std::vector<TestTensor> second(first.begin() + 9, first.end());
  first.resize(9);
  json weight_map;
  for (const auto& tensor : first) weight_map[tensor.name] = "model-1.safetensors";
  for (const auto& tensor : second) weight_map[tensor.name] = "model-2.safetensors";
  folder.Write("model-1.safetensors", SafetensorsBytes(first));
  folder.Write("model-2.safetensors", SafetensorsBytes(second));
  folder.Write("model.safetensors.index.json",
               json({{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}}).dump());
  folder.Remove("model.safetensors");
}

std::vector<float> TinyLogits(const std::string& folder) {
  ReferenceBackend backend;
  const auto model = Model::Load(folder, &backend);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const auto pass = ForwardPass::Create(model->get(), &backend, 4);
  EXPECT_TRUE(pass.ok()) << pass.status();
  const KvLayout layout = (*model)->LayoutFor(4, DType::kF32);
  std::vector<std::byte> pool(layout.BlockBytes());
  const TokenId tokens[] = {4, 0, 3};
  const BlockId blocks[] = {0};
  const int rows[] = {2};
  const SequenceRows sequence{.rows = 3, .blocks = blocks};
  std::vector<float> logits((*model)->config().vocab);
  const auto status =
      (*pass)->Run({.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = rows},
                   {.data = pool.data(), .layout = layout}, absl::MakeSpan(logits));
  EXPECT_TRUE(status.ok()) << status;
  return logits;
}

}  // namespace baton
