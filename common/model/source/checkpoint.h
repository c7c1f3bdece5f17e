#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/source/gguf_parts.h"
#include "common/model/source/model_config.h"
#include "common/model/source/safetensors_file.h"
#include "common/model/source/weight_tensor.h"
#include "kernels/formats/weight_format.h"

namespace baton {

// The tensors of a model: those in model.safetensors of a folder, those in the files that
// model.safetensors.index.json names, or those of a GGUF file.
class Checkpoint {
 public:
  // Returns NotFound if the folder has neither model.safetensors nor an index. Returns
  // InvalidArgument for a bad file, for example if the index names a file outside of the folder or
  // a tensor that its file lacks. The message names the file, the tensor, what was found and what
  // was expected.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);
  // Takes the tensors of a GGUF file, or of the parts of a split one, under the names that
  // transformers gives them. `config` is that of the first part. Returns InvalidArgument for a
  // tensor that no model of its family has, and for one that two parts have.
  static absl::StatusOr<Checkpoint> FromGguf(std::shared_ptr<const GgufParts> parts,
                                             const ModelConfig& config);

  // Path of model.safetensors, of the index, or of the GGUF file. Messages about a missing tensor
  // contain this path.
  const std::string& path() const { return path_; }
  const absl::flat_hash_map<std::string, WeightTensor>& tensors() const { return tensors_; }
  // Takes a tensor of tensors() out, or gives it one more name. The files stay as they are.
  void Remove(const std::string& name) { tensors_.erase(name); }
  void AddName(const std::string& name, const std::string& another) {
    tensors_[another] = tensors_.at(name);
  }
  // Returns the narrowest format of the quantised matrices, if there are any, or else the narrowest
  // type that holds the values of all matrices: f16 or bf16 if all have this type, otherwise f32.
  // It is known before a backend is created, because the choice of backend may depend on it.
  WeightFormat MatrixFormat() const;
  // The place of the settings that say which tensors there must be, for messages.
  absl::string_view settings_name() const { return settings_name_; }
  // The types that matrices, or other weights, may have in these files, for messages.
  absl::string_view TypesOf(bool is_matrix) const;
  // Returns FailedPrecondition if a file has changed since Open.
  absl::Status CheckUnchanged() const;

 private:
  absl::Status OpenShards(const std::string& folder);

  std::string path_;
  absl::string_view settings_name_ = "config.json";
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::shared_ptr<const GgufParts> gguf_;
  absl::flat_hash_map<std::string, WeightTensor> tensors_;
};

}  // namespace baton
