#pragma once

#include <cstddef>
#include <cstdint>

// The kernels of one instruction set as a table of function pointers, and their argument structs.
//
// Any thread may call a kernel, and several threads at once if they share neither scratch memory
// nor outputs. A kernel keeps no pointer after the call, allocates no memory, calls no maths
// library and cannot fail: it checks no argument. Pointers to elements may be unaligned. Scratch
// memory may hold anything before a call and after it. Strides are in floats. The functions in
// vec_*.h and *_inl.h, of which the kernels are made, follow the same rules.
//
// This file, and files that include it from a kernels_*.cc, use no inline function of the standard
// library or Abseil. The linker keeps one copy of such a function for the whole program. This could
// be the copy compiled for AVX-512, which other processors can't run.
namespace baton::cpu {

enum class Element : int { kF32, kF16, kBf16 };  // same values as DType

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

constexpr int kKeyTile = 64;        // keys per softmax step; tiles begin at multiples of it
constexpr int kKeySpan = 1024;      // keys per partial result; spans begin at multiples of it
constexpr int kPanelCols = 24;      // max weight rows per call of `gemm`
constexpr int kBlockRows = 96;      // max activation rows per call of `gemm`
constexpr int kRawRows = 8;         // up to this many rows, `gemm` does not copy weights
constexpr int kKBlock = 512;        // inputs per block of widened weights, which stays in the cache
constexpr int kAttendQueries = 64;  // target for rows x heads of one attention task

constexpr ptrdiff_t RoundUp16(ptrdiff_t n) { return (n + 15) / 16 * 16; }

// A GEMM: out[m][n] = sum over k of x[m][k] * w[n][k], then + bias[n] if there is a bias, then +
// the old out[m][n] if `accumulate`.
struct GemmTask {
  const float* x;  // each row is readable up to RoundUp16(k), with zeros from k on
  ptrdiff_t x_stride;
  const void* w;  // [n][k], no padding
  Element type;
  ptrdiff_t k;
  const float* bias;  // may be null
  float* out;
  ptrdiff_t out_stride;
  bool accumulate;
};

// Attention of consecutive rows of one sequence, for the query heads that share one KV head.
struct AttentionTask {
  const float* q;  // query of the first row and the group's first head
  ptrdiff_t q_stride;
  float* out;
  ptrdiff_t out_stride;
  int rows;
  int group;  // number of query heads that share the KV head
  int head_dim;
  ptrdiff_t first_position;
  int window;      // max keys that a query sees, its own included; 0: all
  int first_span;  // span of the first key that the first query sees
  float scale;
  float soft_cap;    // 0: no cap
  const char* keys;  // the first key of this layer and head in block 0
  const char* values;
  size_t block_bytes;
  size_t token_bytes;
  int block_tokens;
  const int32_t* blocks;
  Element type;
};

// Arguments of `rotate`: the heads of one row, with cosine and sine of the angle of each pair.
struct RopeTask {
  const float* in;  // [heads * head_dim]
  float* out;       // may be `in`
  int heads;
  int head_dim;
  int pairs;            // pairs of elements to rotate; a head's other elements do not change
  const float* cosine;  // [pairs]
  const float* sine;
};

struct IsaKernels {
  const char* name;

  // `gemm` and `gemm_small` compute rows [m0, m1) and outputs [n0, n1) of a GEMM. `gemm` accepts up
  // to kBlockRows rows and kPanelCols outputs; its `scratch` has `gemm_scratch` floats and is
  // 64-byte aligned. `gemm_small` accepts up to `small_rows` rows and any number of outputs, and
  // reads the weights in place.
  void (*gemm)(const GemmTask& task, int m0, int m1, int n0, int n1, float* scratch);
  size_t gemm_scratch;
  void (*gemm_small)(const GemmTask& task, int m0, int m1, int n0, int n1);
  int small_rows;

  // `attend` computes the attention of a whole task. `attend_span` and `attend_merge` do the same
  // in two steps: `attend_span` computes the partial results of one span of keys, in any order and
  // on any thread. Then `attend_merge` merges those of all spans from task.first_span on, which lie
  // one after another in `partials`.
  void (*attend)(const AttentionTask& task, float* scratch);
  void (*attend_span)(const AttentionTask& task, int span, float* partial, float* scratch);
  void (*attend_merge)(const AttentionTask& task, const float* partials, float* scratch);
  size_t (*attend_scratch)(int queries, int head_dim);  // in floats
  size_t (*attend_partial)(int queries, int head_dim);  // in floats, for one span

  // `rms_norm`, `silu_mul` and `exp` compute `n` values; `out` may be `in` or `gate`. `rms_norm` is
  // in / sqrt(mean(in^2) + epsilon) * weight. `silu_mul` is gate / (1 + exp(-gate)) * up. `widen`
  // and `narrow` convert `n` values to and from float. `narrow` rounds to nearest even; values that
  // are too large become infinite.
  void (*rms_norm)(const float* in, const void* weight, Element type, float epsilon, int n,
                   float* out);
  void (*silu_mul)(const float* gate, const float* up, int n, float* out);
  void (*rotate)(const RopeTask& task);
  void (*widen)(const void* in, Element type, ptrdiff_t n, float* out);
  void (*narrow)(const float* in, ptrdiff_t n, Element type, void* out);
  void (*exp)(const float* in, int n, float* out);
};

extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;
extern const IsaKernels kPortableKernels;  // slow reference implementation

}  // namespace baton::cpu
