#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/source/safetensors_file.h"
#include "kernels/formats/dtype.h"

namespace baton {

// One tensor of a checkpoint and the file that holds it.
struct CheckpointTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
  // Type of the elements, or nullopt if it is no type of weights.
  std::optional<DType> type() const;
};

// The tensors of a model folder: those in model.safetensors, or those in the files that
// model.safetensors.index.json names.
class Checkpoint {
 public:
  // Returns NotFound if the folder has neither model.safetensors nor an index. Returns
  // InvalidArgument for a bad file, for example if the index names a file outside of the folder or
  // a tensor that its file lacks. The message names the file, the tensor, what was found and what
  // was expected.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);

  // Path of model.safetensors or of the index. Messages about a missing tensor contain this path.
  const std::string& path() const { return path_; }
  const absl::flat_hash_map<std::string, CheckpointTensor>& tensors() const { return tensors_; }
  // Takes a tensor of tensors() out, or gives it one more name. The files stay as they are.
  void Remove(const std::string& name) { tensors_.erase(name); }
  void AddName(const std::string& name, const std::string& another) {
    tensors_[another] = tensors_.at(name);
  }
  // Returns the narrowest type that holds the values of all matrices: f16 or bf16 if all have this
  // type, otherwise f32. The type is known before a backend is created, because the choice of
  // backend may depend on it.
  DType MatrixType() const;
  // Returns FailedPrecondition if a file has changed since Open.
  absl::Status CheckUnchanged() const;

 private:
  absl::Status OpenShards(const std::string& folder);

  std::string path_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  absl::flat_hash_map<std::string, CheckpointTensor> tensors_;
};

}  // namespace baton
