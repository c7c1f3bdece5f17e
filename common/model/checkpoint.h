#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/safetensors_file.h"
#include "kernels/backend/dtype.h"

namespace baton {

// One tensor of a checkpoint and the file that holds it.
struct CheckpointTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

// The tensors of a model folder: those of model.safetensors, or of the files that
// model.safetensors.index.json names. Immutable.
class Checkpoint {
 public:
  // NotFound when the folder has neither. InvalidArgument names file, tensor, found and expected;
  // so for an index that names a file outside of the folder, or a tensor its file has not got.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);

  // model.safetensors, or the index: what a message about a missing tensor names.
  const std::string& path() const { return path_; }
  const absl::flat_hash_map<std::string, CheckpointTensor>& tensors() const { return tensors_; }
  // The type that holds the values of all its matrices: f32 where f16 and bf16 both occur, or some
  // other. Known before a backend is made, which may depend on it.
  DType MatrixType() const;
  // FailedPrecondition when a file is not what it was at Open.
  absl::Status CheckUnchanged() const;

 private:
  absl::Status OpenShards(const std::string& folder);

  std::string path_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  absl::flat_hash_map<std::string, CheckpointTensor> tensors_;
};

}  // namespace baton
