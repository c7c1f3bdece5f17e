#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/layer_weights.h"
#include "common/model/model_folder.h"
#include "common/model/source/model_config.h"
#include "common/model/tensor_shape.h"
#include "kernels/backend/backend.h"

namespace baton {

// A model ready to run on one backend: its configuration and its weights, mapped from the files of
// a Hugging Face folder or from a GGUF file. Immutable once loaded. Must outlive every ForwardPass
// on it, and the backend must outlive the model.
class Model {
 public:
  // Called with the bytes of weights loaded so far and the total. May be null.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Loads the weights of the folder's checkpoint. Checks name, shape, type and extent of every
  // tensor before using it. If one is wrong, returns InvalidArgument with the file, the tensor,
  // what was expected and what was found. If the backend copies weights, it has copied all of them
  // when Load returns. Otherwise the files are only mapped, and PageIn() reads them.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(ModelFolder folder, Backend* backend,
                                                           const Progress& progress = nullptr);
  // Opens the folder at `path` with ModelFolder::Open and loads its weights.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(const std::string& path,
                                                           Backend* backend);
  // Makes bf16 weights from a seed (random_weights.h), one tensor at a time. If the backend copies
  // weights, at most one tensor is in host memory at any time. Returns ResourceExhausted if the
  // weights do not fit.
  static absl::StatusOr<std::unique_ptr<const Model>> WithRandomWeights(
      const ModelConfig& config, uint64_t seed, Backend* backend,
      const Progress& progress = nullptr);
  // Creates a model without weights, for the fake backend, which never reads them.
  static std::unique_ptr<const Model> WithoutWeights(const ModelConfig& config);
  ~Model();

  // Reads all used weights of mapped files until all of them are in memory, so that no step waits
  // for the disk. Does nothing for weights that are not mapped. Returns DataLoss or
  // FailedPrecondition if a file has changed.
  absl::Status PageIn(const Progress& progress = nullptr) const;

  // Returns OK if `checkpoint` has the tensors of a model with this configuration, in the right
  // shapes and types, and no others (SettleOddTensors() takes out those that may be there unused).
  // Otherwise returns InvalidArgument with the file, the tensor, what was found and what was
  // expected. Reads no weights.
  static absl::Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

  // Returns every tensor that checkpoints of a model with this configuration have, ordered by
  // layer.
  static std::vector<TensorShape> TensorsOf(const ModelConfig& config);

  const ModelConfig& config() const;
  // Fingerprint of configuration and weights. Copies of one folder have the same fingerprint on
  // every machine. It covers the tensor table of every file and some bytes of every tensor, not all
  // bytes.
  const std::string& fingerprint() const;
  // Widest type of the weight matrices. `--kv-type=auto` uses it for the KV cache.
  DType weight_type() const;
  size_t weight_bytes() const;
  // Bytes of those weights whose files lie in a memory file system (tmpfs). Such files use memory
  // even before they are mapped. At most weight_bytes().
  size_t weight_bytes_in_memory() const;
  // Returns the pool layout for the KV of a model with this configuration.
  static KvLayout LayoutOf(const ModelConfig& config, int block_tokens, DType kv_type);
  KvLayout LayoutFor(int block_tokens, DType kv_type) const {
    return LayoutOf(config(), block_tokens, kv_type);
  }

  const Matrix& embedding() const;   // [vocab, hidden]
  const Matrix& final_norm() const;  // [1, hidden]
  const Matrix& head() const;        // [vocab, hidden]; the embedding if they are tied
  const LayerWeights& layer(int i) const;

 private:
  struct Parts;
  explicit Model(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton
