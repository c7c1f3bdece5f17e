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

// Weights of one decoder layer, as the backend holds them. Biases and norms of heads without data
// are absent.
struct LayerWeights {
  Matrix attention_norm, mlp_norm;
  Matrix q, k, v, o, gate, up, down;
  Matrix q_norm, k_norm;  // of each head
  Matrix q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
};

// A tensor that checkpoints of a model have.
struct TensorShape {
  enum class Kind { kMatrix, kNorm, kBias };  // the last two have one dimension
  std::string name;
  Kind kind = Kind::kMatrix;
  int64_t rows = 0;  // 1 of a vector
  int64_t cols = 0;
  // Rows of each weight that is cut from it, in order: one, but where a family fuses projections.
  std::vector<int64_t> weight_rows;

  int64_t elements() const { return rows * cols; }
  std::vector<int64_t> Dimensions() const {
    return kind == Kind::kMatrix ? std::vector<int64_t>{rows, cols} : std::vector<int64_t>{cols};
  }
};

// The configuration and the table of tensors of a Hugging Face folder, without the weights. A
// worker reads them once and passes them on.
struct ModelFolder {
  ModelConfig config;
  std::optional<Checkpoint> checkpoint;  // none where weights come from elsewhere

  // Reads config.json and, where asked for, the tables of *.safetensors (one file or an index), and
  // checks that the tensors are those of the model. InvalidArgument names file, tensor, expected
  // and found; other errors are those of ReadModelConfig and Checkpoint::Open.
  static absl::StatusOr<ModelFolder> Open(const std::string& path, bool with_checkpoint = true);
};

// A model ready to run on one backend: its architecture and its weights, mapped from the files of a
// Hugging Face folder. Immutable once loaded; outlives every Forward on it, and needs the backend.
class Model {
 public:
  // Told of bytes of weights that are there and of those that there will be; may be null.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Takes weights from the folder's checkpoint. Every tensor's name, shape, type and extent is
  // checked before use: InvalidArgument names file, tensor, expected and found. A backend that
  // copies weights has them when this returns; for another one the files are only mapped, and
  // PageIn() reads them.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(ModelFolder folder, Backend* backend,
                                                           const Progress& progress = nullptr);
  // The same of the folder at that path.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(const std::string& path,
                                                           Backend* backend);
  // Weights from a seed (random_weights.h), in bf16, made a tensor at a time: where the backend
  // copies them no more than one is in host memory. ResourceExhausted when they do not fit.
  static absl::StatusOr<std::unique_ptr<const Model>> WithRandomWeights(
      const ModelConfig& config, uint64_t seed, Backend* backend,
      const Progress& progress = nullptr);
  // No weights at all: for the fake backend, which never reads them.
  static std::unique_ptr<const Model> WithoutWeights(const ModelConfig& config);
  ~Model();

  // Reads all weights that are used where they are mapped, until all of them are in memory, so that
  // no step waits for the disk. Does nothing for others. DataLoss or FailedPrecondition when a file
  // is not what it was.
  absl::Status PageIn(const Progress& progress = nullptr) const;

  // Whether `checkpoint` has the tensors of such a model, in the right shapes and types, and no
  // others. Reads no weights. InvalidArgument names file, tensor, found and expected.
  static absl::Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

  // Every tensor that checkpoints of such a model have, by layer.
  static std::vector<TensorShape> TensorsOf(const ModelConfig& config);

  const ModelConfig& config() const;
  // Of configuration and weights: equal for copies of one folder, wherever they are. Sampled, not a
  // full read: tensor table of every file, and some bytes of every tensor.
  const std::string& fingerprint() const;
  // The widest type of its weight matrices, which `--kv-type=auto` takes for the KV cache.
  DType weight_type() const;
  size_t weight_bytes() const;
  // Those of them that lie in a file system of memory, and count as used before they are mapped.
  size_t weight_bytes_in_memory() const;
  // Returns the layout of such a model's KV in a pool.
  static KvLayout LayoutOf(const ModelConfig& config, int block_tokens, DType kv_type);
  KvLayout LayoutFor(int block_tokens, DType kv_type) const {
    return LayoutOf(config(), block_tokens, kv_type);
  }

  const Matrix& embedding() const;   // [vocab, hidden]
  const Matrix& final_norm() const;  // [1, hidden]
  const Matrix& head() const;        // [vocab, hidden]; the embedding when they are tied
  const LayerWeights& layer(int i) const;

 private:
  struct Parts;
  explicit Model(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// One step for the forward pass: rows of all sequences one after another.
struct ForwardBatch {
  absl::Span<const TokenId> tokens;          // [rows]
  absl::Span<const SequenceRows> sequences;  // cover all rows, in order
  absl::Span<const int> logit_rows;          // rows whose logits are wanted
  // As in StepArgs, for a backend that draws; empty: neither.
  absl::Span<const int> follows;               // [rows]
  absl::Span<const DrawOptions* const> draws;  // [logit_rows]
  // [sequences], the reach of each one's rotary table (rope_config.h), never less than its last
  // position; empty: each is a prompt, and its rows the last of it.
  absl::Span<const int> rope_reach;
  bool more_logits = false;  // MoreLogits will be called for others
  // Beats with every layer that the backend is given, and then as StepArgs says; may be null.
  Pulse* pulse = nullptr;
};

// Where the results of a step go.
struct ForwardResults {
  absl::Span<float> logits;      // [logit_rows that are not drawn, vocab], in host memory
  absl::Span<DrawnToken> drawn;  // [logit_rows that are drawn]
};

// Layer `layer`'s KV of all rows of a step will be in the pool once the work that `written`
// recorded has run; null: it is there. Layers come in order, each before the next one is begun.
using LayerDone = std::function<void(int layer, std::shared_ptr<DeviceEvent> written)>;

// Runs a model. Holds the activation memory for steps of up to `max_rows` rows. One thread.
//
// A step of which every row is a sequence's one token, with the logits of each, in order, is always
// the same operations: the backend may record it, and then runs it as a whole.
class ForwardPass {
 public:
  // No sequence has more than `context` tokens; 0: as the model. ResourceExhausted when the
  // activations do not fit.
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(const Model* model, Backend* backend,
                                                             int max_rows, int context = 0);
  // Columns of every activation tensor that Create allocates, each of `max_rows` rows.
  static std::vector<int> ActivationCols(const ModelConfig& config);

  // Writes the KV of every row into `kv`, and logits [logit_rows.size(), vocab] into `logits` (host
  // memory). `layer_done` is called for every layer, at the end where the backend ran the step as a
  // whole; nothing waits for it on the device. When Run returns, however it went, all that it put
  // there has run.
  // FailedPrecondition while a step is started.
  absl::Status Run(const ForwardBatch& batch, const KvView& kv, absl::Span<float> logits,
                   const LayerDone& layer_done = nullptr);

  // Run in two halves, with at most Backend::kMostSteps between them. Start leaves the step to the
  // backend: views in `batch` end with the call; what `results` points to must live until Finish
  // has told of this step. After an error of Start there is nothing to finish.
  absl::Status Start(const ForwardBatch& batch, const KvView& kv, const ForwardResults& results);
  // Waits for the oldest step that was started.
  absl::Status Finish();

  // Logits of other rows of the last batch that was run, which had `more_logits`: a few at a time,
  // where those of all would be too much memory. `logits` is [rows.size(), vocab].
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
  const uint64_t program_;  // of the backend
  int started_ = 0;         // and not finished
  int rows_for_more_ = 0;   // of the last batch
  Tensor hidden_, normed_, q_, k_, v_, attention_, gate_, up_;
  std::map<int, std::vector<float>> rope_tables_;  // by reach
  std::vector<Rope> ropes_;                        // of the current step's sequences
};

}  // namespace baton
