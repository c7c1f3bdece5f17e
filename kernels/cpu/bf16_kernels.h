#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_kernels.h"

// Kernels for GEMMs of activations rounded to bf16 with weights stored as bf16. The summation order
// is that of tdpbf16ps or that of vdpbf16ps, two instructions of x86 processors (README.md). What
// isa_kernels.h says about threads, memory and alignment holds for these kernels too. After a call,
// the thread's floating-point mode is as before, and its AMX tiles are released.
namespace baton::cpu {

constexpr ptrdiff_t RoundUp32(ptrdiff_t n) { return (n + 31) / 32 * 32; }

// A GEMM: out[m][n] = sum over k of bf16(x[m][k]) * w[n][k], then + bias[n] if there is a bias,
// then + the old out[m][n] if `accumulate`.
struct Bf16Task {
  const char* x;  // as packed by `pack`
  int m;          // total number of rows, as given to `pack`
  ptrdiff_t k;
  const Bf16* w;      // [n][k], no padding, at any alignment
  const float* bias;  // may be null
  float* out;
  ptrdiff_t out_stride;
  bool accumulate;
};

// Kernels for one summation order on one instruction set. Before `gemm`, the caller packs all rows
// of the activations, in any order and on any threads.
struct Bf16Kernels {
  const char* name;  // name of the instructions
  int panel_cols;  // number of weight rows computed together; n0 of `gemm` must be a multiple of it
  int group_cols;  // best number of weight rows per call when there are many activation rows
  int block_rows;  // max activation rows per call of `gemm`; a multiple of 16

  // Rounds rows m0 to m0 + 15 of the m rows of `x` to bf16, or fewer rows at the end, and writes
  // them to their place in `packed`. m0 must be a multiple of 16. Rows of `x` begin `x_stride`
  // floats apart.
  void (*pack)(const float* x, ptrdiff_t x_stride, int m, ptrdiff_t k, int m0, char* packed);
  size_t (*packed_bytes)(int m, ptrdiff_t k);  // size of `packed`, which is 64-byte aligned

  // Computes rows [m0, m1) and outputs [n0, n1) of the GEMM. m0 must be a multiple of block_rows,
  // and n0 of panel_cols. `scratch` must be 64-byte aligned and have scratch_bytes(rows, k) bytes,
  // where no call has more than `rows` rows.
  void (*gemm)(const Bf16Task& task, int m0, int m1, int n0, int n1, char* scratch);
  size_t (*scratch_bytes)(int rows, ptrdiff_t k);
};

// Kernels that sum in the same order as the instruction tdpbf16ps. kAmxTiles uses this instruction.
// The other kAmx tables compute the same bits without it.
extern const Bf16Kernels kAmxTiles;
extern const Bf16Kernels kAmxOrderAvx512;
extern const Bf16Kernels kAmxOrderAvx2;
extern const Bf16Kernels kAmxOrderPlain;  // slow reference implementation
// Kernels that sum in the same order as the instruction vdpbf16ps. kPairDotAvx512 uses this
// instruction. kPairDotPlain is the slow reference implementation.
extern const Bf16Kernels kPairDotAvx512;
extern const Bf16Kernels kPairDotPlain;

}  // namespace baton::cpu
