#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model.h"
#include "kernels/backend/backend.h"

namespace baton {

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
