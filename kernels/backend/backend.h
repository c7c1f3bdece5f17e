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
#include "kernels/backend/draw.h"
#include "kernels/backend/dtype.h"
#include "kernels/backend/kv_layout.h"
#include "kernels/backend/step_limits.h"

namespace baton {

class DeviceEvent;
class Pulse;

// A weight matrix `[rows, cols]`, row-major without padding: `rows` outputs of `cols` inputs each.
// A vector is a matrix of one row.
struct Matrix {
  const void* data = nullptr;
  DType type = DType::kF32;
  int rows = 0;
  int cols = 0;
};

// Activations `[rows, cols]` in the backend's own element type (float on the CPU, bf16 on CUDA),
// rows `stride` elements apart. A view: slices of columns and runs of rows of one allocation are
// Tensors too.
struct Tensor {
  void* data = nullptr;
  int rows = 0;
  int cols = 0;
  int stride = 0;
};

// One sequence's rows in a step: consecutive rows hold consecutive positions. Also says where its
// KV lies.
struct SequenceRows {
  int first_row = 0;
  int rows = 0;
  int first_position = 0;            // absolute position of `first_row`
  absl::Span<const BlockId> blocks;  // in token order, covering positions up to the last row's
};

// The KV pool as kernels see it.
struct KvView {
  std::byte* data = nullptr;
  KvLayout layout;
};

// Rotary embedding, Su et al. 2021, in the "rotate half" form of Hugging Face: of the first
// 2 * pairs elements of a head, element i is rotated with element i + pairs by angle
// position * inverse_frequency[i]. The others stay.
struct Rope {
  absl::Span<const float> inverse_frequency;  // [pairs], 1 to head_dim / 2
  float scale = 1.0f;                         // multiplies cosine and sine
};

// In the arguments of operations, `step` is the step that the operation belongs to: the one that
// StartStep passed to StepOps, whose own tokens, sequences and rows the operation then takes. It is
// null for an operation outside of any step. A backend that tells the two apart compares the
// address, and answers InvalidArgument for another step than the one whose operations are called.
struct StepArgs;

struct EmbedArgs {
  Matrix table;                      // [vocab, hidden]
  absl::Span<const TokenId> tokens;  // [rows], each in [0, vocab)
  Tensor out;                        // [rows, hidden]
  const StepArgs* step = nullptr;
};

// out = in / sqrt(mean(in^2) + epsilon) * weight, for each group of n columns of a row by itself: a
// norm of whole rows has one group, a norm of heads as many as heads. `out` may be `in`. Zhang &
// Sennrich 2019.
struct RmsNormArgs {
  Tensor in;      // [rows, groups * n]
  Matrix weight;  // [1, n]
  float epsilon = 0;
  Tensor out;  // [rows, groups * n]
};

// out = in * weight^T + bias, or out += ... with `accumulate`. `out` may not overlap `in`.
struct GemmArgs {
  Tensor in;      // [rows, k]
  Matrix weight;  // [n, k]
  Matrix bias;    // [1, n], or data == nullptr
  bool accumulate = false;
  Tensor out;  // [rows, n]
};

// Rotates q in place, rotates k and writes it with v into the pool at each row's position. q may
// overlap neither k nor v.
struct RopeAndWriteKvArgs {
  Tensor q;                      // [rows, heads * head_dim], rotated in place
  Tensor k;                      // [rows, kv_heads * head_dim], left as it was
  Tensor v;                      // [rows, kv_heads * head_dim]
  absl::Span<const Rope> ropes;  // one for each sequence, or a single one for all
  int layer = 0;
  absl::Span<const SequenceRows> sequences;
  KvView kv;
  const StepArgs* step = nullptr;
};

// Causal attention of every row over its own sequence's positions 0..its own, or the last `window`
// of them, read from the pool (so RopeAndWriteKv of the same layer comes first). K and V of other
// positions change no bit of the result, whatever they hold. Query head h reads KV head
// h / (heads / kv_heads). Sliding windows: Beltagy et al. 2020, Jiang et al. 2023.
struct AttentionArgs {
  Tensor q;  // [rows, heads * head_dim], rotated
  int heads = 0;
  float scale = 0;  // multiplies q . k
  int window = 0;   // positions that a row sees, its own included; 0 for all
  int layer = 0;
  absl::Span<const SequenceRows> sequences;
  KvView kv;
  Tensor out;  // [rows, heads * head_dim]; may not overlap q
  // Scores become soft_cap * tanh(score / soft_cap), off by about 2^-22 of it; 1e-3 to 1e4, or
  // 0: they stay. Gemma 2, arXiv:2408.00118.
  float soft_cap = 0;
  const StepArgs* step = nullptr;
};

// out = gate / (1 + exp(-gate)) * up. `out` may be `gate`.
struct SiluMulArgs {
  Tensor gate, up, out;  // [rows, n]
};

// Logits of chosen rows, in host memory when the call returns; in a step (StepArgs) when the step
// has finished.
struct LogitsArgs {
  Tensor in;                   // [rows, hidden], normalised
  Matrix head;                 // [vocab, hidden]
  absl::Span<const int> rows;  // which rows of `in`
  absl::Span<float> out;       // [rows.size(), vocab]
  const StepArgs* step = nullptr;
};

// One step, whose operations are called by StepOps: what they have in common, and what differs from
// one step to the next.
struct StepArgs {
  // The same number: the same operations, with the same weights and tensors, that depend on nothing
  // but what is here. Then a backend may record them and not call them again. From NewProgram; 0
  // for what may not be recorded.
  uint64_t program = 0;
  int max_rows = 0;                  // that the program's tensors have room for
  int context = 0;                   // no sequence of the program has more positions
  int vocab = 0;                     // tokens are below
  absl::Span<const TokenId> tokens;  // [rows]
  // [rows], or empty: row i takes, instead of tokens[i], what was drawn for logit row follows[i] of
  // the step that was started before this one; -1: it does not. Needs draws().
  absl::Span<const int> follows;
  absl::Span<const SequenceRows> sequences;  // of all rows
  absl::Span<const Rope> ropes;              // one for each sequence, or a single one for all
  KvView kv;
  absl::Span<const int> logit_rows;  // rows whose logits are wanted
  // [logit_rows], or empty: null, or how the backend draws from that row's logits. Needs draws().
  absl::Span<const DrawOptions* const> draws;
  // Where results go, by the time that FinishStep has returned; as long as that it must live.
  absl::Span<float> logits;      // [logit_rows that are not drawn, vocab], in order
  absl::Span<DrawnToken> drawn;  // [logit_rows that are drawn], in order
  // Of a step that is longer than one token of each sequence: beaten by FinishStep with every layer
  // that it sees the device has done, so that a device which stops is told from one that is slow.
  // Lives as long as the results; may be null.
  Pulse* pulse = nullptr;
};

// Calls the operations of a step. Operations that take `step` get the address of `step`, and its
// `tokens`, `sequences`, `ropes`, `kv`, `logit_rows` and `logits`. `step.tokens` has as many rows
// as the operations are to work on: those of the step that was started, and perhaps padding rows
// behind them, which belong to no sequence. No Synchronize where the step has a program.
using StepOps = absl::FunctionRef<absl::Status(const StepArgs& step)>;

// The maths, behind one seam. One caller at a time. Operations run in the order of the calls; all
// but Logits may return before they have run, and Synchronize() waits for them. Arguments are
// views: what they point to must live, and stay as it is, until then. Errors: InvalidArgument for
// shapes an operation can't do.
//
// Batch invariance: a row's result depends on that row's inputs (and its sequence's KV) alone, bit
// for bit, whatever other rows, chunks and threads there are. Products of a CUDA device are the one
// exception: there the number of rows may choose another order of the sum, and only the same batch
// gives the same bits (cuda/cuda_backend.h).
class Backend {
 public:
  virtual ~Backend() = default;

  // Backend, instruction path and summation order. Workers exchange KV only when these are equal:
  // then their results are, or, where products depend on the batch, differ by rounding alone.
  virtual std::string numerics_id() const = 0;
  // What it runs on, for the log at start.
  virtual std::string Describe() const = 0;

  // Makes host weights, at any alignment, usable by the operations. `host` must outlive the last of
  // them (it may be a mapped file that is used in place), but where copies_weights() it has been
  // read when the call returns. ResourceExhausted when device memory does not suffice.
  virtual absl::StatusOr<Matrix> LoadWeight(const Matrix& host) = 0;
  virtual bool copies_weights() const { return false; }
  // Activation memory, not initialised, owned by the backend until it is destroyed.
  virtual absl::StatusOr<Tensor> Allocate(int rows, int cols) = 0;

  // Takes the memory that steps within `limits` need beside Allocate's, so that they allocate
  // nothing. ResourceExhausted. Without it, or beyond it, memory is taken as steps want it.
  virtual absl::Status Reserve(const StepLimits& /*limits*/) { return absl::OkStatus(); }

  virtual absl::Status Embed(const EmbedArgs& args) = 0;
  virtual absl::Status RmsNorm(const RmsNormArgs& args) = 0;
  virtual absl::Status Gemm(const GemmArgs& args) = 0;
  virtual absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) = 0;
  virtual absl::Status Attention(const AttentionArgs& args) = 0;
  virtual absl::Status SiluMul(const SiluMulArgs& args) = 0;
  virtual absl::Status Logits(const LogitsArgs& args) = 0;
  virtual absl::Status Synchronize() = 0;
  // A point behind all that was called so far, which other streams of the backend's device can wait
  // for; null where all of that has run when the call returns. Not in a step that may be recorded.
  // Any thread may wait for it and let go of it, but not once the device's runtime is gone.
  virtual absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() {
    RETURN_IF_ERROR(Synchronize());
    return std::shared_ptr<DeviceEvent>();
  }

  // Whether it draws tokens, from vocabularies of up to most_draw_vocab(), and takes rows that
  // follow a step which has not finished.
  virtual bool draws() const { return false; }
  virtual int most_draw_vocab() const { return 0; }
  // A number for the operations of a step that stay the same; 0: nothing is recorded.
  virtual uint64_t NewProgram() { return 0; }
  // Runs a step, or leaves it to run: views in `step` end with this call, but for those of results.
  // At most kMostSteps are started and not finished: beyond, FailedPrecondition. After an error it
  // does not count as started, nothing of it is on its way, and the KV of its positions is
  // undefined. InvalidArgument as for the
  // operations, all of it checked before anything runs.
  //
  // A block that a step writes to or reads from stays what it is until that step has finished.
  static constexpr int kMostSteps = 2;
  virtual absl::Status StartStep(const StepArgs& step, StepOps ops);
  // Waits for the oldest step that was started, and for no later one. FailedPrecondition when there
  // is none. After another error none of its results are there, and nor is its KV.
  virtual absl::Status FinishStep();
  // Memory for results: they come there while StartStep goes on, where for other memory it may wait
  // until they are there. Freed before the backend.
  virtual absl::StatusOr<std::shared_ptr<float[]>> AllocateResults(size_t floats);

 private:
  int started_ = 0;  // steps of a backend that runs them at once
};

}  // namespace baton
