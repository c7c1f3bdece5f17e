#pragma once

#include <cstddef>
#include <cstdint>

// The kernels of one instruction set behind plain function pointers, and their argument structs.
// This file and those that include it from a kernels_*.cc use no inline function of the standard
// library or Abseil: a copy of one compiled for AVX-512 could be the one the linker keeps for
// everybody. Pointers to elements may be unaligned. No function allocates or calls a maths library.
namespace baton::cpu {

enum class Element : int { kF32, kF16, kBf16 };  // the values of DType

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

constexpr int kKeyTile = 64;        // keys whose softmax is taken together, at absolute positions
constexpr int kKeySpan = 1024;      // keys whose attention is one partial result, absolute as well
constexpr int kPanelCols = 24;      // weight rows that one call of `gemm` takes at most
constexpr int kBlockRows = 96;      // activation rows that one call of `gemm` takes at most
constexpr int kRawRows = 8;         // up to here `gemm` does not set widened weights down
constexpr int kKBlock = 512;        // inputs whose widened weights stay in the cache together
constexpr int kAttendQueries = 64;  // rows x heads that one attention task should have

constexpr ptrdiff_t RoundUp16(ptrdiff_t n) { return (n + 15) / 16 * 16; }

// out[m][n] = sum over k of x[m][k] * w[n][k], + bias[n], + the old out[m][n] with accumulate.
struct GemmTask {
  const float* x;  // rows readable up to RoundUp16(k), zero from k on
  ptrdiff_t x_stride;
  const void* w;  // [n][k], no padding
  Element type;
  ptrdiff_t k;
  const float* bias;  // or null
  float* out;
  ptrdiff_t out_stride;
  bool accumulate;
};

// Consecutive rows of one sequence and the query heads that share a KV head.
struct AttentionTask {
  const float* q;  // first row, first head of the group
  ptrdiff_t q_stride;
  float* out;
  ptrdiff_t out_stride;
  int rows;
  int group;  // heads
  int head_dim;
  ptrdiff_t first_position;
  int window;      // keys that a query sees, its own the last of them; 0 for all
  int first_span;  // with a key that the first query sees
  float scale;
  float soft_cap;    // 0: none
  const char* keys;  // this layer's and head's first key in block 0
  const char* values;
  size_t block_bytes;
  size_t token_bytes;
  int block_tokens;
  const int32_t* blocks;
  Element type;
};

// Heads of one row, rotated by the angles whose cosines and sines are given.
struct RopeTask {
  const float* in;  // [heads * head_dim]
  float* out;       // may be `in`
  int heads;
  int head_dim;
  int pairs;            // of a head's first elements that are rotated
  const float* cosine;  // [pairs]
  const float* sine;
};

struct IsaKernels {
  const char* name;

  // Rows [m0, m1) and outputs [n0, n1). `gemm` takes up to kBlockRows by kPanelCols and needs
  // `gemm_scratch` floats, 64-byte aligned; `gemm_small` takes up to `small_rows` by anything and
  // reads the weights as they lie.
  void (*gemm)(const GemmTask& task, int m0, int m1, int n0, int n1, float* scratch);
  size_t gemm_scratch;
  void (*gemm_small)(const GemmTask& task, int m0, int m1, int n0, int n1);
  int small_rows;

  // Attention of a whole task, and the same in two steps: the partial results of every span of
  // keys in any order and place, then their merge.
  void (*attend)(const AttentionTask& task, float* scratch);
  void (*attend_span)(const AttentionTask& task, int span, float* partial, float* scratch);
  void (*attend_merge)(const AttentionTask& task, const float* partials, float* scratch);
  size_t (*attend_scratch)(int queries, int head_dim);  // floats
  size_t (*attend_partial)(int queries, int head_dim);  // floats of one span

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
extern const IsaKernels kPortableKernels;  // slow; says what the others must compute

}  // namespace baton::cpu
