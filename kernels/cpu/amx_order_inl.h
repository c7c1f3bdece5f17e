#pragma once

// GEMMs in the summation order of tdpbf16ps, the AMX instruction, but computed by fused
// multiply-adds. Only kernels_avx2.cc and kernels_avx512.cc include this file, after dot_inl.h.
// Each lane holds one output. For every 32 inputs, kPairCols weight rows are transposed and widened
// to floats, which stay in the first-level cache. All rows of activations then use these floats.
namespace baton::cpu {
namespace {

constexpr int kPairVecs = 2;  // Vecs of outputs in a register tile
constexpr int kPairCols = kPairVecs * kLanes;
constexpr int kPairBlockRows = 96;

// Makes denormal inputs count as zero and denormal results become zero, as the tile instruction
// does. Restores the control register when destroyed.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  const unsigned saved_;
};

// Replaces denormals by a zero of the same sign.
inline Vec WithoutDenormals(Vec x) {
  return SelectLess(Max(x, Sub(Zero(), x)), Broadcast(0x1p-126f), Mul(x, Zero()), x);
}

// Rounds rows m0 to m0 + 15 of the activations to bf16. Stores the rounded values as floats in an
// array [k / 32][m][32], with zeros for elements from k on. So the values of all rows that are
// multiplied with the same 32 weights lie side by side.
void PairPack(const float* x, ptrdiff_t x_stride, int m, ptrdiff_t k, int m0, char* packed) {
  for (ptrdiff_t row = m0; row < m && row < m0 + 16; ++row) {
    const float* from = x + row * x_stride;
    for (ptrdiff_t i = 0; i < RoundUp32(k); i += kLanes) {
      const ptrdiff_t left = k - i;
      Bf16 narrow[kLanes];
      const Vec in = left >= kLanes ? Load(from + i)
                     : left > 0     ? LoadWidePartial(from + i, left)
                                    : Zero();
      StoreNarrow(narrow, WithoutDenormals(in));
      Store(reinterpret_cast<float*>(packed) + (i / 32 * m + row) * 32 + i % 32, LoadWide(narrow));
    }
  }
}
size_t PairPackedBytes(int m, ptrdiff_t k) { return m * RoundUp32(k) * sizeof(float); }
size_t PairScratchBytes(int rows, ptrdiff_t) {
  return (32 + rows) * static_cast<size_t>(kPairCols) * sizeof(float);
}

// Adds the products of one group of 32 inputs to sums[row][kPairCols]. The products of inputs 0, 2,
// ... form one chain of fused multiply-adds, the even chain. Those of inputs 1, 3, ... form the odd
// chain. Both start from zero; even + odd is added to the sum.
template <int kRows>
inline void PairTile(const float* x, ptrdiff_t x_stride, const float* wide, float* sums) {
  Vec even[kRows][kPairVecs], odd[kRows][kPairVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kPairVecs; ++v) even[r][v] = odd[r][v] = Zero();
  }
  for (int j = 0; j < 32; j += 2) {
    Vec w[kPairVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kPairVecs; ++v) w[v] = Load(wide + j * kPairCols + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec in = Broadcast(x[r * x_stride + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kPairVecs; ++v) even[r][v] = Fma(in, w[v], even[r][v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kPairVecs; ++v) w[v] = Load(wide + (j + 1) * kPairCols + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec in = Broadcast(x[r * x_stride + j + 1]);
#pragma GCC unroll 4
      for (int v = 0; v < kPairVecs; ++v) odd[r][v] = Fma(in, w[v], odd[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kPairVecs; ++v) {
      float* sum = sums + r * kPairCols + v * kLanes;
      Store(sum, Add(Load(sum), Add(even[r][v], odd[r][v])));
    }
  }
}

template <int kRows = kTileRows>
inline void PairTileOf(int rows, const float* x, ptrdiff_t x_stride, const float* wide,
                       float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return PairTileOf<kRows - 1>(rows, x, x_stride, wide, sums);
  }
  PairTile<kRows>(x, x_stride, wide, sums);
}

// Computes the sums of up to kPairCols outputs. Not inlined, so that the compiler moves no other
// arithmetic between the points where FlushDenormals sets and restores the control register.
__attribute__((noinline)) void PairSums(const Bf16Task& task, int m0, int m1, int n0, int n1,
                                        float* wide, float* sums) {
  const FlushDenormals flush;
  const float* x = reinterpret_cast<const float*>(task.x) + static_cast<ptrdiff_t>(m0) * 32;
  const RowTiles tiles(m1 - m0);
  const Bf16* rows[kPairCols];
  for (int c = 0; c < kPairCols; ++c) rows[c] = task.w + (n0 + c < n1 ? n0 + c : n1 - 1) * task.k;
  for (int i = 0; i < (m1 - m0) * kPairCols; i += kLanes) Store(sums + i, Zero());
  for (ptrdiff_t k0 = 0; k0 < task.k; k0 += 32) {
    if (k0 + 32 <= task.k) {
      WidenTransposed(rows, k0, wide);
    } else {
      Bf16 last[kPairCols][32] = {};
      const Bf16* last_rows[kPairCols];
      for (int c = 0; c < kPairCols; ++c) {
        __builtin_memcpy(last[c], rows[c] + k0, (task.k - k0) * sizeof(Bf16));
        last_rows[c] = last[c];
      }
      WidenTransposed(last_rows, 0, wide);
    }
    for (int tile = 0; tile < tiles.count; ++tile) {
      PairTileOf(tiles.size(tile), x + (k0 / 32 * task.m + tiles.begin(tile)) * 32, 32, wide,
                 sums + tiles.begin(tile) * kPairCols);
    }
  }
}

void PairGemm(const Bf16Task& task, int m0, int m1, int n0, int n1, char* scratch) {
  float* wide = reinterpret_cast<float*>(scratch);
  float* sums = wide + 32 * kPairCols;
  for (int n = n0; n < n1; n += kPairCols) {
    const int cols = n1 - n < kPairCols ? n1 - n : kPairCols;
    PairSums(task, m0, m1, n, n + cols, wide, sums);
    for (ptrdiff_t m = m0; m < m1; ++m) {
      const float* sum = sums + (m - m0) * kPairCols;
      float* out = task.out + m * task.out_stride + n;
      for (int c = 0; c < cols; ++c) {
        float value = sum[c];
        if (task.bias != nullptr) value += task.bias[n + c];
        out[c] = task.accumulate ? out[c] + value : value;
      }
    }
  }
}

constexpr Bf16Kernels MakeAmxOrder(const char* name) {
  return {.name = name,
          .panel_cols = kPairCols,
          .group_cols = kPairCols,
          .block_rows = kPairBlockRows,
          .pack = PairPack,
          .packed_bytes = PairPackedBytes,
          .gemm = PairGemm,
          .scratch_bytes = PairScratchBytes};
}

}  // namespace
}  // namespace baton::cpu
