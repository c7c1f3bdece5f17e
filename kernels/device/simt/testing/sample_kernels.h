#pragma once

#include <cstdint>

#include "kernels/device/runtime/kernel.h"

namespace baton::emulated_kernels {

// Kernels like the real ones in shape. Mutations of these kernels (sample_mutations.txt) measure
// how well the emulator finds faults.

// Computes out[row] = in[row] / rms(in[row]), and the largest |out| of each row. One block per row.
struct NormalizeParams {
  const float* in = nullptr;  // [rows, columns]
  float* out = nullptr;       // [rows, columns]
  float* largest = nullptr;   // [rows]
  int columns = 0;
};
extern const Kernel kNormalize;
constexpr int kNormalizeThreads = 128;

// Computes out = a * b^T. A block of 128 threads computes 64 rows by 32 columns of out. It reads 32
// columns of a and b at a time, in a pipeline of 3 stages.
struct TileGemmParams {
  const void* a = nullptr;  // [m, k] bf16
  const void* b = nullptr;  // [n, k] bf16
  float* out = nullptr;     // [m, n]
  int m = 0, n = 0, k = 0;  // k is a multiple of 8
};
extern const Kernel kTileGemm;
constexpr int kGemmThreads = 128, kGemmRows = 64, kGemmColumns = 32;
constexpr int kGemmSharedBytes = 3 * (kGemmRows + kGemmColumns) * (32 + 8) * 2;

// Attention of one query per head over paged keys and values, in two kernels. In kSplitAttention,
// each block of 128 threads computes a range of a sequence's pages. In kMergeSplits, one warp per
// head merges the partial results.
struct SplitAttentionParams {
  static constexpr int kHeadDim = 64, kPageTokens = 16;

  const float* query = nullptr;  // [sequences, heads, 64]
  const void* keys = nullptr;    // [pages, heads, 16, 64] bf16
  const void* values = nullptr;  // same shape as keys
  const int* pages = nullptr;    // [sequences, max_pages] page ids in token order
  const int* lengths = nullptr;  // [sequences] tokens, at least 1
  float* partial = nullptr;      // [sequences, heads, splits, 66]: maximum, sum, output
  float* out = nullptr;          // [sequences, heads, 64]
  int heads = 0, max_pages = 0, splits = 0;
};
extern const Kernel kSplitAttention;  // grid: splits, heads, sequences
extern const Kernel kMergeSplits;     // grid: heads, sequences; 32 threads

}  // namespace baton::emulated_kernels
