#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/checkpoint.h"
#include "common/model/model_config.h"
#include "kernels/backend/backend.h"

namespace baton {

// Weights of one decoder layer, as the backend holds them. Biases and head norms that the model
// lacks have no data.
struct LayerWeights {
  Matrix attention_norm, mlp_norm;
  Matrix q, k, v, o, gate, up, down;
  Matrix q_norm, k_norm;  // one row of head_dim each, used for every head
  Matrix q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
};

// A tensor that the model's checkpoints contain.
struct TensorShape {
  enum class Kind { kMatrix, kNorm, kBias };  // norms and biases have one dimension
  std::string name;
  Kind kind = Kind::kMatrix;
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  // Number of rows of each weight that is cut from this tensor, in order. There is one weight,
  // except where a family fuses projections.
  std::vector<int64_t> weight_rows;

  int64_t elements() const { return rows * cols; }
  std::vector<int64_t> Dimensions() const {
    return kind == Kind::kMatrix ? std::vector<int64_t>{rows, cols} : std::vector<int64_t>{cols};
  }
};

// The configuration and the tensor table of a Hugging Face folder, without the weights. A worker
// reads the folder once and passes this object on.
struct ModelFolder {
  ModelConfig config;
  std::optional<Checkpoint> checkpoint;  // absent if the weights do not come from the folder
  std::vector<std::string> warnings;     // for the log, from SettleOddTensors()

  // Reads config.json and, with `with_checkpoint`, the tables of *.safetensors (one file, or
  // several with an index). Returns InvalidArgument if the tensors are not those of the model; the
  // message names the file, the tensor, what was expected and what was found. Other errors are
  // those of ReadModelConfig and Checkpoint::Open.
  static absl::StatusOr<ModelFolder> Open(const std::string& path, bool with_checkpoint = true);
};

// A model ready to run on one backend: its configuration and its weights, mapped from the files of
// a Hugging Face folder. Immutable once loaded. Must outlive every ForwardPass on it, and the
// backend must outlive the model.
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

// The input of one step of the forward pass. The rows of all sequences come one after another.
struct ForwardBatch {
  absl::Span<const TokenId> tokens;          // [rows]
  absl::Span<const SequenceRows> sequences;  // together cover all rows, in order
  absl::Span<const int> logit_rows;          // rows that need logits
  // `follows` and `samples` are described at StepArgs. They are for backends that sample tokens,
  // and empty if unused.
  absl::Span<const int> follows;                   // [rows]
  absl::Span<const SampleOptions* const> samples;  // [logit_rows]
  // [sequences]: max sequence length of the rotary table to use for each sequence (RopeReach in
  // rope_config.h), at least the number of its tokens after this step. If this is empty, each
  // sequence must be a prompt that ends with this step.
  absl::Span<const int> rope_reach;
  bool more_logits = false;  // true if MoreLogits will be called for further rows
  // Shows progress: gets a beat for every layer that ForwardPass gives to the backend, and beats
  // from the backend (see StepArgs::pulse). May be null.
  Pulse* pulse = nullptr;
};

// Memory that receives the results of a step.
struct ForwardResults {
  absl::Span<float> logits;  // [logit_rows not sampled by the backend, vocab], in host memory
  absl::Span<BackendSample> sampled;  // [logit_rows sampled by the backend]
};

// Called once per layer, in order. If `written` is null, the layer's KV of all rows of the step is
// in the pool. If not, this KV is there once the event `written` has occurred. Each call comes
// before the next layer begins, except in a step that the backend runs as a whole.
using LayerDone = std::function<void(int layer, std::shared_ptr<DeviceEvent> written)>;

// Runs a model. Holds the activation memory for steps of up to `max_rows` rows. One thread.
//
// In a decode step, every sequence has one row, and the logits of all rows are wanted in order.
// Such steps always consist of the same operations. So the backend may record them once and then
// run each step as a whole.
class ForwardPass {
 public:
  // No sequence may have more than `context` tokens; 0 means the model's context. Returns
  // ResourceExhausted if the activations do not fit.
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(const Model* model, Backend* backend,
                                                             int max_rows, int context = 0);
  // Returns the columns of every activation tensor that Create allocates. Each tensor has
  // `max_rows` rows.
  static std::vector<int> ActivationCols(const ModelConfig& config);

  // Writes the KV of every row into `kv`, and logits [logit_rows.size(), vocab] into `logits` (host
  // memory). Calls `layer_done` for every layer, or for all layers at the end if the backend runs
  // the step as a whole. The device does not wait for these calls. When Run returns, even with an
  // error, all work that it gave to the device has run. Returns FailedPrecondition if a started
  // step is not finished.
  absl::Status Run(const ForwardBatch& batch, const KvView& kv, absl::Span<float> logits,
                   const LayerDone& layer_done = nullptr);

  // Start and Finish are the two halves of Run. At most Backend::kMaxSteps steps may be started and
  // not finished. Start hands the step to the backend. The views in `batch` are needed only during
  // the call, but the memory that `results` points to must live until Finish has returned for this
  // step. If Start returns an error, there is nothing to finish.
  absl::Status Start(const ForwardBatch& batch, const KvView& kv, const ForwardResults& results);
  // Waits for the oldest running step.
  absl::Status Finish();

  // Computes the logits of further rows of the last batch, which must have been run with
  // `more_logits`. Callers ask for a few rows at a time, because the logits of all rows would need
  // too much memory. `logits` is [rows.size(), vocab].
  absl::Status MoreLogits(absl::Span<const int> rows, absl::Span<float> logits);

  int max_rows() const { return max_rows_; }

 private:
  ForwardPass(const Model* model, Backend* backend, int max_rows, int context);
  absl::Status Check(const ForwardBatch& batch, const KvView& kv,
                     const ForwardResults& results) const;
  void ChooseRopes(const ForwardBatch& batch);
  bool CanBeRecorded(const ForwardBatch& batch) const;
  absl::Status StartStep(const ForwardBatch& batch, const KvView& kv, const ForwardResults& results,
                         const LayerDone& layer_done);
  absl::Status RunLayers(const StepArgs& step, bool more_logits, const LayerDone& layer_done);
  absl::Status WriteKv(const StepArgs& step, int layer);
  absl::Status Attend(const StepArgs& step, int layer);
  absl::Status FeedForward(int rows, int layer);
  absl::Status Norm(Tensor in, const Matrix& weight, Tensor out);
  absl::Status Project(Tensor in, const Matrix& weight, const Matrix& bias, Tensor out);
  absl::Status ProjectAndAdd(Tensor in, const Matrix& weight, const Matrix& bias, Tensor out);

  const Model* model_;
  Backend* backend_;
  const int max_rows_, context_;
  const uint64_t program_;  // number from Backend::NewProgram
  int started_ = 0;         // steps started and not finished
  int rows_for_more_ = 0;   // rows that MoreLogits may ask for
  Tensor hidden_, normed_, q_, k_, v_, attention_, gate_, up_;
  // Frequencies of each rotary table, keyed by the max sequence length of the table.
  std::map<int, std::vector<float>> rope_tables_;
  std::vector<Rope> ropes_;  // for the current step's sequences
};

}  // namespace baton
