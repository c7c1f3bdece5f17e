#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/base/types.h"
#include "kernels/backend/backend_sample.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/backend/step_limits.h"
#include "kernels/formats/dtype.h"
#include "kernels/formats/weight_format.h"

namespace baton {

class DeviceEvent;
class Pulse;

// A weight matrix `[rows, cols]`, row-major without padding. It maps `cols` inputs to `rows`
// outputs. A vector is a matrix of one row. In a quantised format, `cols` is a multiple of the
// values of a block.
struct Matrix {
  const void* data = nullptr;
  WeightFormat format = WeightFormat::kF32;
  int rows = 0;
  int cols = 0;
};

// Activations `[rows, cols]` in the backend's own element type: float on the CPU, bf16 on CUDA.
// Neighbouring rows are `stride` elements apart. A Tensor is a view: a range of columns or of rows
// of an allocation is a Tensor too.
struct Tensor {
  void* data = nullptr;
  int rows = 0;
  int cols = 0;
  int stride = 0;
};

// The rows of one sequence in a step, and the blocks of its KV. Consecutive rows hold consecutive
// positions.
struct SequenceRows {
  int first_row = 0;
  int rows = 0;
  int first_position = 0;            // absolute position of `first_row`
  absl::Span<const BlockId> blocks;  // in token order, up to the block of the last row's position
};

// The KV pool as kernels see it.
struct KvView {
  std::byte* data = nullptr;
  KvLayout layout;
};

// Rotary embedding, Su et al. 2021, in the "rotate half" form of Hugging Face. Only the first 2 *
// pairs elements of a head are rotated: element i together with element i + pairs, by the angle
// position * inverse_frequency[i]. The remaining elements keep their values.
struct Rope {
  absl::Span<const float> inverse_frequency;  // [pairs]; pairs is 1 to head_dim / 2
  float scale = 1.0f;                         // multiplies cosine and sine
  // The elements of a pair lie beside each other in q and k as they come in: 2i and 2i + 1 are
  // those that are rotated together as i and i + pairs. They leave in the order above. Only for
  // backends that do not copy weights: Model puts the rows of copied weights in order.
  bool interleaved = false;
};

// The `step` of an operation's arguments is the address that StartStep passed to StepOps, or null
// outside of any step. Inside a step, the operation uses the step's tokens, sequences and rows. A
// backend that runs the two cases differently returns InvalidArgument if `step` is not the step
// whose operations are being called.
struct StepArgs;

struct EmbedArgs {
  Matrix table;                      // [vocab, hidden]
  absl::Span<const TokenId> tokens;  // [rows], each in [0, vocab)
  Tensor out;                        // [rows, hidden]
  const StepArgs* step = nullptr;
};

// out = in / sqrt(mean(in^2) + epsilon) * weight, for each group of n columns of a row separately.
// A norm of whole rows has one group, a norm of heads has one group per head. `out` may be `in`.
// Zhang & Sennrich 2019.
struct RmsNormArgs {
  Tensor in;      // [rows, groups * n]
  Matrix weight;  // [1, n]
  float epsilon = 0;
  Tensor out;  // [rows, groups * n]
};

// out = in * weight^T + bias or, if `accumulate` is true, out += in * weight^T + bias. `out` may
// not overlap `in`.
struct GemmArgs {
  Tensor in;      // [rows, k]
  Matrix weight;  // [n, k]
  Matrix bias;    // [1, n], or data == nullptr
  bool accumulate = false;
  Tensor out;  // [rows, n]
};

// Rotates q in place. Writes the rotated k, and v, into the pool at each row's position. q may
// overlap neither k nor v.
struct RopeAndWriteKvArgs {
  Tensor q;                      // [rows, heads * head_dim], rotated in place
  Tensor k;                      // [rows, kv_heads * head_dim], not changed
  Tensor v;                      // [rows, kv_heads * head_dim]
  absl::Span<const Rope> ropes;  // one for each sequence, or a single one for all sequences
  int layer = 0;
  absl::Span<const SequenceRows> sequences;
  KvView kv;
  const StepArgs* step = nullptr;
};

// Causal attention. Each row attends to the positions of its sequence up to and including its own.
// If `window` is not 0, it attends only to the last `window` of these positions. K and V are read
// from the pool, so RopeAndWriteKv of the same layer must be called first. K and V of other
// positions change no bit of the result, whatever they hold. Query head h reads KV head h / (heads
// / kv_heads). Sliding windows: Beltagy et al. 2020, Jiang et al. 2023.
struct AttentionArgs {
  Tensor q;  // [rows, heads * head_dim], rotated
  int heads = 0;
  float scale = 0;  // factor of the products q . k
  int window = 0;   // max positions that a row sees, its own included; 0: no limit
  int layer = 0;
  absl::Span<const SequenceRows> sequences;
  KvView kv;
  Tensor out;  // [rows, heads * head_dim]; may not overlap q
  // Scores become soft_cap * tanh(score / soft_cap), with a relative error of about 2^-22. Valid
  // values are 1e-3 to 1e4, and 0 for no soft cap. Gemma 2, arXiv:2408.00118.
  float soft_cap = 0;
  const StepArgs* step = nullptr;
};

// out = gate / (1 + exp(-gate)) * up. `out` may be `gate`.
struct SiluMulArgs {
  Tensor gate, up, out;  // [rows, n]
};

// Logits of chosen rows. Outside of a step they are in `out`, in host memory, when the call
// returns. In a step they are in StepArgs::logits when FinishStep has returned.
struct LogitsArgs {
  Tensor in;                   // [rows, hidden], normalised
  Matrix head;                 // [vocab, hidden]
  absl::Span<const int> rows;  // indices of rows of `in`
  absl::Span<float> out;       // [rows.size(), vocab]
  const StepArgs* step = nullptr;
};

// One step: the tokens and sequences that it computes, and memory for its results. The operations
// that StepOps calls share these arguments. Some stay the same for all steps of a program (see
// `program`), the others change with each step.
struct StepArgs {
  // Steps with the same program number run the same operations on the same weights and tensors, and
  // the operations depend on nothing else but the fields of this struct. A backend may then record
  // the operations and replay them without another call of StepOps. The number comes from
  // NewProgram; it is 0 for a step that may not be recorded.
  uint64_t program = 0;
  int max_rows = 0;                  // max rows of the program's tensors
  int context = 0;                   // max positions of a sequence in this program
  int vocab = 0;                     // size of the vocabulary; all token ids are below it
  absl::Span<const TokenId> tokens;  // [rows]
  // [rows], or empty. If follows[i] is -1, row i has the token tokens[i]. Otherwise it has the
  // token that was sampled for logit row follows[i] of the step started just before this one. Must
  // be empty unless samples() is true.
  absl::Span<const int> follows;
  absl::Span<const SequenceRows> sequences;  // the sequences that the rows belong to
  absl::Span<const Rope> ropes;  // one for each sequence, or a single one for all sequences
  KvView kv;
  absl::Span<const int> logit_rows;  // indices of the rows whose logits are wanted
  // [logit_rows], or empty. If entry i is null, the backend returns the logits of logit row i.
  // Otherwise it samples a token from these logits with the options of the entry. Must be empty
  // unless samples() is true.
  absl::Span<const SampleOptions* const> samples;
  // Memory for the results, which are complete when FinishStep has returned. The memory must live
  // until then.
  absl::Span<float> logits;           // [logit rows without a sample, vocab], in order
  absl::Span<BackendSample> sampled;  // [logit rows with a sample], in order
  // Used for steps that hold more than one token of some sequence; may be null. FinishStep calls
  // Beat() on this pulse each time it sees that the device has completed a layer. This tells a slow
  // device from one that has stopped. The pulse must live until FinishStep has returned.
  Pulse* pulse = nullptr;
};

// Calls the operations of a step. Passes on the address of `step` to each operation that has a
// `step` argument, and takes the operation's tokens, sequences, ropes, KV and logits from `step`.
// The operations work on as many rows as `step.tokens` has: the rows of the started step, perhaps
// followed by padding rows, which belong to no sequence. Must not call Synchronize if
// `step.program` is not 0, because the backend may record the operations.
using StepOps = absl::FunctionRef<absl::Status(const StepArgs& step)>;

// The interface for a model's operations. One caller at a time. Operations run in the order of
// their calls. All except Logits may return before they have run; Synchronize() waits for them.
// Arguments are views: the memory that they point to must live, unchanged, until the operation has
// run. Operations return InvalidArgument for shapes that they do not support.
//
// Batch invariance: a row's result depends only on that row's inputs and its sequence's KV, bit for
// bit. It depends neither on the other rows of the step, nor on the chunks into which a prompt is
// cut, nor on the number of threads. The only exception are GEMMs on a CUDA device: the order of a
// sum may depend on the number of rows, so only the same batch gives the same bits
// (cuda/cuda_backend.h).
class Backend {
 public:
  virtual ~Backend() = default;

  // Names the implementation, its instruction path and the order in which it computes sums. Workers
  // exchange KV only if their numerics ids are equal. Workers with equal ids compute equal results
  // or, where GEMMs depend on the batch, results that differ by rounding alone.
  virtual std::string numerics_id() const = 0;
  // The hardware that this backend runs on, for the log at start.
  virtual std::string Describe() const = 0;

  // Makes the weights in `host` usable by the operations. They may have any alignment. `host` must
  // outlive the last operation on these weights, because a mapped file may be used in place. If
  // copies_weights() is true, `host` is no longer needed when the call returns. Returns
  // ResourceExhausted if device memory does not suffice.
  virtual absl::StatusOr<Matrix> LoadWeight(const Matrix& host) = 0;
  virtual bool copies_weights() const { return false; }
  // Allocates memory for activations, not initialised. The backend owns the memory, and frees it
  // when the backend is destroyed.
  virtual absl::StatusOr<Tensor> Allocate(int rows, int cols) = 0;

  // Allocates all further memory that steps within `limits` need, so that such steps allocate
  // nothing. Returns ResourceExhausted if there is too little. A step beyond `limits`, or without
  // an earlier call of Reserve, allocates its memory when it runs.
  virtual absl::Status Reserve(const StepLimits& /*limits*/) { return absl::OkStatus(); }

  virtual absl::Status Embed(const EmbedArgs& args) = 0;
  virtual absl::Status RmsNorm(const RmsNormArgs& args) = 0;
  virtual absl::Status Gemm(const GemmArgs& args) = 0;
  // Computes several GEMMs that have the same input and do not read each other's results. The
  // results are those of Gemm().
  virtual absl::Status Gemms(absl::Span<const GemmArgs> all) {
    for (const GemmArgs& args : all) {
      if (absl::Status done = Gemm(args); !done.ok()) return done;
    }
    return absl::OkStatus();
  }
  virtual absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) = 0;
  virtual absl::Status Attention(const AttentionArgs& args) = 0;
  virtual absl::Status SiluMul(const SiluMulArgs& args) = 0;
  virtual absl::Status Logits(const LogitsArgs& args) = 0;
  virtual absl::Status Synchronize() = 0;
  // Records an event after all operations called so far, so that other streams of the backend's
  // device can wait for them. Returns null if all of these operations have already run. Not allowed
  // in a step that may be recorded. Any thread may wait for the event and release it, but it must
  // be released before the device's runtime is destroyed.
  virtual absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() {
    RETURN_IF_ERROR(Synchronize());
    return std::shared_ptr<DeviceEvent>();
  }

  // True if the backend can sample tokens from vocabularies of up to max_sample_vocab() tokens, and
  // accepts StepArgs::samples and StepArgs::follows.
  virtual bool samples() const { return false; }
  virtual int max_sample_vocab() const { return 0; }
  // Returns a new number for StepArgs::program, which identifies steps that run the same
  // operations. Returns 0 if the backend can't record a step.
  virtual uint64_t NewProgram() { return 0; }
  // StartStep runs a step, or enqueues it and returns. The views in `step` need to live only until
  // the call returns, except those for results. At most kMaxSteps steps may be started and not
  // finished; StartStep returns FailedPrecondition for one more. It returns InvalidArgument in the
  // same cases as the operations, and for `samples` or `follows` if samples() is false. After an
  // error the step does not count as started, none of its work is still running, and the KV of its
  // positions is undefined.
  //
  // Until the step has finished, the caller must not free or change the KV blocks that the step
  // reads or writes.
  static constexpr int kMaxSteps = 2;
  virtual absl::Status StartStep(const StepArgs& step, StepOps ops);
  // Waits for the oldest started step, and for no later one. Returns FailedPrecondition if no step
  // is started. After any other error the step's results and its KV are undefined.
  virtual absl::Status FinishStep();
  // Allocates memory for the results of steps. If a step's results are in such memory, StartStep
  // returns without waiting for them; with other memory it may wait. The memory must be freed
  // before the backend is destroyed.
  virtual absl::StatusOr<std::shared_ptr<float[]>> AllocateResults(size_t floats);

 private:
  // Number of steps that are started and not finished, for backends whose StartStep runs the whole
  // step.
  int started_ = 0;
};

}  // namespace baton
