#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_kernels.h"

// Products of activations rounded to bf16 with weights stored as bf16, in one of the orders that
// processors' own bf16 instructions have (README.md). The rules of isa_kernels.h hold here too.
namespace baton::cpu {

constexpr ptrdiff_t RoundUp32(ptrdiff_t n) { return (n + 31) / 32 * 32; }

// out[m][n] = sum over k of bf16(x[m][k]) * w[n][k], + bias[n], + the old out[m][n] with
// accumulate.
struct Bf16Task {
  const char* x;  // as `pack` left it
  int m;          // rows in all, as `pack` was told
  ptrdiff_t k;
  const Bf16* w;      // [n][k], no padding, at any alignment
  const float* bias;  // or null
  float* out;
  ptrdiff_t out_stride;
  bool accumulate;
};

// One order on one instruction set.
struct Bf16Kernels {
  const char* name;  // of the instructions
  int panel_cols;    // weight rows that are computed together: ranges begin at multiples of it
  int group_cols;    // weight rows that one call takes best where there are many activation rows
  int block_rows;    // activation rows that one call of `gemm` takes at most: a multiple of 16

  // Rounds rows m0 to m0 + 15 of the m rows to bf16 and packs them for `gemm`. m0 is a multiple
  // of 16.
  void (*pack)(const float* x, ptrdiff_t x_stride, int m, ptrdiff_t k, int m0, char* packed);
  size_t (*packed_bytes)(int m, ptrdiff_t k);  // for 64-byte aligned memory

  // Rows [m0, m1), m0 a multiple of block_rows, and outputs [n0, n1). `scratch` is 64-byte aligned.
  void (*gemm)(const Bf16Task& task, int m0, int m1, int n0, int n1, char* scratch);
  size_t (*scratch_bytes)(int rows, ptrdiff_t k);
};

// The order of tdpbf16ps: with the instruction, and with fused multiply-adds.
extern const Bf16Kernels kAmxTiles;
extern const Bf16Kernels kAmxOrderAvx512;
extern const Bf16Kernels kAmxOrderAvx2;
extern const Bf16Kernels kAmxOrderPlain;  // slow; says what the others must compute
// The order of vdpbf16ps.
extern const Bf16Kernels kPairDotAvx512;
extern const Bf16Kernels kPairDotPlain;

}  // namespace baton::cpu
