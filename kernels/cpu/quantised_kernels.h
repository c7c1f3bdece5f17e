#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_kernels.h"

// Kernels for GEMMs of quantised weights with activations rounded to 8 bits. Their results are
// those of kernels/formats/quantised_product.h, bit for bit. What isa_kernels.h says about threads,
// memory and alignment holds for these kernels too.
namespace baton::cpu {

enum class Blocks : int { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };
constexpr int kBlockFormats = 8;

constexpr int kGroupValues = 32;      // values that share a scale of the activations
constexpr int kQuantisedRows = 128;   // max activation rows per call of `gemm`
constexpr int kFewQuantisedRows = 4;  // max activation rows for QuantisedKernels::for_few

// A GEMM: out[m][n] = product of x[m] and w[n], then + bias[n] if there is a bias, then + the old
// out[m][n] if `accumulate`.
struct QuantisedTask {
  // Activations as `quantise` writes them. k is a multiple of the format's block.
  const int8_t* x;        // [m][k]
  const float* x_scale;   // [m][k / 32]
  const int32_t* x_sums;  // [m][k / 32][2]: sums of each half of a group
  ptrdiff_t k;
  const char* w;  // [n][row_bytes]
  ptrdiff_t row_bytes;
  const float* bias;  // may be null
  float* out;
  ptrdiff_t out_stride;
  bool accumulate;
};

// Addresses of up to 16 rows, `bytes` apart. Each is the sum of a base and one or two times a
// stride, which is one operand of an instruction. So all of them fit into registers.
struct RowsOfPanel {
  [[gnu::always_inline]] RowsOfPanel(const char* first, ptrdiff_t bytes)
      : fours{first, first + 4 * bytes, first + 8 * bytes, first + 12 * bytes},
        one(bytes),
        three(3 * bytes) {}
  [[gnu::always_inline]] const char* At(int row) const {
    return fours[row / 4] + (row % 4 == 3 ? three : row % 4 * one);
  }

  const char* fours[4];  // every fourth row
  ptrdiff_t one, three;  // bytes of one row, and of three
};

struct QuantisedKernels {
  const char* name;  // name of the instructions
  int panel_rows;    // number of weight rows computed together

  // Rounds a row of k activations, a multiple of 32.
  void (*quantise)(const float* in, ptrdiff_t k, int8_t* x, float* scale, int32_t* sums);
  // Computes rows [m0, m1), up to kQuantisedRows, and outputs [n0, n1) of the GEMM, for weights of
  // the format that is the index. `scratch` has `scratch_bytes` bytes and is 64-byte aligned.
  void (*gemm[kBlockFormats])(const QuantisedTask& task, int m0, int m1, int n0, int n1,
                              char* scratch);
  size_t scratch_bytes;
  const QuantisedKernels* for_few;  // kernels for up to kFewQuantisedRows rows; null: these
};

extern const QuantisedKernels kQuantisedAmx;   // tdpbsud, beside kQuantisedVnni for few rows
extern const QuantisedKernels kQuantisedVnni;  // vpdpbusd in AVX-512
extern const QuantisedKernels kQuantisedAvx2;

}  // namespace baton::cpu
