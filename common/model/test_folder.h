#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/scratch_folder.h"
#include "common/model/model_config.h"

namespace baton {

// A model folder that tests spoil.
class TestFolder : public ScratchFolder {
 public:
  void Remove(absl::string_view name) const;
  void CopyFrom(const std::string& folder) const;

  // Rewrites a JSON file.
  void EditJson(absl::string_view name, const std::function<void(nlohmann::json&)>& edit) const;
  // Rewrites the header of a safetensors file as text, its length with it; the data stay.
  void EditHeader(absl::string_view name, const std::function<void(std::string&)>& edit) const;
};

// A tensor to write. Data are float weights made from the name, so that all files agree on them.
struct TestTensor {
  std::string name;
  std::string dtype;  // F32, F16 or BF16
  std::vector<int> shape;
};

// A safetensors file of these tensors. `padding` spaces end the header: an odd number misaligns the
// data.
std::string SafetensorsBytes(const std::vector<TestTensor>& tensors, int padding = 0);

// The smallest Llama there is: 2 layers of 2 query heads and 1 KV head of 2, hidden 4,
// vocabulary 5.
nlohmann::json TinyConfig();
// It as ReadModelConfig has it, with changes, and beside a generation_config.json that is not null.
absl::StatusOr<ModelConfig> ReadTiny(const nlohmann::json& changes,
                                     const nlohmann::json& generation = nullptr);
// Its tensors, matrices and vectors of the given types.
std::vector<TestTensor> TinyTensors(const std::string& matrix_dtype = "F32",
                                    const std::string& vector_dtype = "F32");
// config.json and model.safetensors of it.
void WriteTinyModel(const TestFolder& folder);
// Puts its weights into model-1.safetensors, model-2.safetensors and an index instead.
void ShardTinyModel(const TestFolder& folder);
// The tiny model's logits after a short prompt: every weight has been read to its last byte.
std::vector<float> TinyLogits(const std::string& folder);

}  // namespace baton
