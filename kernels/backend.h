#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "kernels/dtype.h"
#include "kernels/kv_layout.h"

namespace baton {

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

struct EmbedArgs {
  Matrix table;                      // [vocab, hidden]
  absl::Span<const TokenId> tokens;  // [rows], each in [0, vocab)
  Tensor out;                        // [rows, hidden]
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
};

// out = gate / (1 + exp(-gate)) * up. `out` may be `gate`.
struct SiluMulArgs {
  Tensor gate, up, out;  // [rows, n]
};

// Logits of chosen rows, in host memory when the call returns.
struct LogitsArgs {
  Tensor in;                   // [rows, hidden], normalised
  Matrix head;                 // [vocab, hidden]
  absl::Span<const int> rows;  // which rows of `in`
  absl::Span<float> out;       // [rows.size(), vocab]
};

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
  // them (it may be a mapped file that is used in place). ResourceExhausted when device memory does
  // not suffice.
  virtual absl::StatusOr<Matrix> LoadWeight(const Matrix& host) = 0;
  // Activation memory, not initialised, owned by the backend until it is destroyed.
  virtual absl::StatusOr<Tensor> Allocate(int rows, int cols) = 0;

  virtual absl::Status Embed(const EmbedArgs& args) = 0;
  virtual absl::Status RmsNorm(const RmsNormArgs& args) = 0;
  virtual absl::Status Gemm(const GemmArgs& args) = 0;
  virtual absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) = 0;
  virtual absl::Status Attention(const AttentionArgs& args) = 0;
  virtual absl::Status SiluMul(const SiluMulArgs& args) = 0;
  virtual absl::Status Logits(const LogitsArgs& args) = 0;
  virtual absl::Status Synchronize() = 0;
};

}  // namespace baton
