#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/base/scratch_folder.h"
#include "common/model/source/model_config.h"

namespace baton {

// A model folder that tests change and damage.
class TestFolder : public ScratchFolder {
 public:
  void Remove(absl::string_view name) const;
  void CopyFrom(const std::string& folder) const;

  // Lets `edit` change the content of the JSON file `name`.
  void EditJson(absl::string_view name, const std::function<void(nlohmann::json&)>& edit) const;
  // Lets `edit` change the header of a safetensors file as text, and updates the header's length.
  // The tensor data stay the same.
  void EditHeader(absl::string_view name, const std::function<void(std::string&)>& edit) const;
};

// Returns the path of a file or folder of common/model/testdata.
std::string TestData(absl::string_view name);

// A tensor to write to a file. Its values depend only on its name, so they are the same in every
// file.
struct TestTensor {
  std::string name;
  std::string dtype;  // F32, F16 or BF16
  std::vector<int> shape;
};

// Returns a safetensors file with `tensors`. The header ends with `padding` additional spaces; an
// odd number misaligns the data.
std::string SafetensorsBytes(const std::vector<TestTensor>& tensors, int padding = 0);

// Returns config.json of the tiny model, the smallest possible Llama: 2 layers with 2 query heads
// and 1 KV head of size 2, hidden size 4, vocabulary 5.
nlohmann::json TinyConfig();
// Reads the tiny model's configuration after merging `changes` into config.json. Writes
// generation_config.json if `generation` is not null.
absl::StatusOr<ModelConfig> ReadTiny(const nlohmann::json& changes,
                                     const nlohmann::json& generation = nullptr);
// Returns the tiny model's tensors, with the given types for matrices and vectors.
std::vector<TestTensor> TinyTensors(const std::string& matrix_dtype = "F32",
                                    const std::string& vector_dtype = "F32");
// Writes config.json and model.safetensors of the tiny model.
void WriteTinyModel(const TestFolder& folder);
// Moves the tiny model's weights into model-1.safetensors, model-2.safetensors and an index.
void ShardTinyModel(const TestFolder& folder);
// Returns the tiny model's logits after a short prompt. This reads every byte of every weight.
std::vector<float> TinyLogits(const std::string& folder);

}  // namespace baton
