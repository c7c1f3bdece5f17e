// The order of the headers matters: each one uses the headers above it.
// clang-format off
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/dot_inl.h"
#include "kernels/cpu/bf16_kernels.h"
// clang-format on

// GEMMs with vdpbf16ps. Weights are used in place. In each of sixteen lanes, the instruction
// multiplies two neighbouring inputs with their weights.
namespace baton::cpu {
namespace {

constexpr int kDotRows = 6, kDotWeights = 4;  // register tile: 24 sums
constexpr int kDotPanel = 24;                 // weight rows per call, whole tiles
constexpr int kDotBlockRows = 96;
// Weights are used in blocks of this many inputs, so that one block of a panel stays in the cache.
constexpr ptrdiff_t kDotBlock = 2048;
constexpr int kDotSums = kDotRows * kDotWeights * 16;

// Rounds activation rows m0 to m0 + 15 to bf16. `packed` is [m][RoundUp32(k)], with zeros from k
// on.
void DotPack(const float* x, ptrdiff_t x_stride, int m, ptrdiff_t k, int m0, char* packed) {
  const ptrdiff_t stride = RoundUp32(k);
  for (ptrdiff_t row = m0; row < m && row < m0 + 16; ++row) {
    const float* from = x + row * x_stride;
    Bf16* to = reinterpret_cast<Bf16*>(packed) + row * stride;
    for (ptrdiff_t i = 0; i < stride; i += 16) {
      const ptrdiff_t left = k - i;
      const Vec in = left >= 16 ? Load(from + i)
                     : left > 0 ? LoadWidePartial(from + i, left)
                                : Zero();
      // The instruction rounds to nearest even and turns denormals into zeros.
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(in)));
    }
  }
}
size_t DotPackedBytes(int m, ptrdiff_t k) { return m * RoundUp32(k) * sizeof(Bf16); }
size_t DotScratchBytes(int rows, ptrdiff_t) {
  return static_cast<size_t>(rows / kDotRows + 1) * (kDotPanel / kDotWeights) * kDotSums *
         sizeof(float);
}

inline __m512bh Pairs(const Bf16* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
inline __m512bh PairsPartial(const Bf16* p, ptrdiff_t n) {
  return reinterpret_cast<__m512bh>(
      _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p));
}

// Multiplies elements [k0, k1) of kRows rows with kDotWeights weight rows and adds the products to
// sums[row][weight][16]. For k0 = 0 the sums start from zero. Prefetches the weights that lie
// `ahead` elements further, for a later call.
template <int kRows>
inline void DotPairs(const Bf16* x, ptrdiff_t x_stride, const Bf16* const* rows, ptrdiff_t k0,
                     ptrdiff_t k1, ptrdiff_t ahead, float* sums) {
  __m512 acc[kRows][kDotWeights];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kDotWeights; ++c) {
      acc[r][c] = k0 == 0 ? Zero() : Load(sums + (r * kDotWeights + c) * 16);
    }
  }
  ptrdiff_t i = k0;
  for (; i + 32 <= k1; i += 32) {
    __m512bh input[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) input[r] = Pairs(x + r * x_stride + i);
#pragma GCC unroll 16
    for (int c = 0; c < kDotWeights; ++c) {
      __builtin_prefetch(rows[c] + i + ahead, 0, 2);
      const __m512bh weight = Pairs(rows[c] + i);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], input[r], weight);
    }
  }
  if (i < k1) {
#pragma GCC unroll 16
    for (int c = 0; c < kDotWeights; ++c) {
      const __m512bh weight = PairsPartial(rows[c] + i, k1 - i);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        acc[r][c] = _mm512_dpbf16_ps(acc[r][c], Pairs(x + r * x_stride + i), weight);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kDotWeights; ++c) Store(sums + (r * kDotWeights + c) * 16, acc[r][c]);
  }
}

template <int kRows = kDotRows>
inline void DotPairsOf(int count, const Bf16* x, ptrdiff_t x_stride, const Bf16* const* rows,
                       ptrdiff_t k0, ptrdiff_t k1, ptrdiff_t ahead, float* sums) {
  if constexpr (kRows > 1) {
    if (count < kRows) return DotPairsOf<kRows - 1>(count, x, x_stride, rows, k0, k1, ahead, sums);
  }
  DotPairs<kRows>(x, x_stride, rows, k0, k1, ahead, sums);
}

void DotPanel(const Bf16Task& task, int m0, int m1, int n0, int n1, float* sums) {
  static_assert(kDotRows == kTileRows);
  const ptrdiff_t stride = RoundUp32(task.k);
  const RowTiles tiles(m1 - m0);
  const int col_tiles = (n1 - n0 + kDotWeights - 1) / kDotWeights;
  const Bf16* rows[kDotPanel];
  for (int c = 0; c < col_tiles * kDotWeights; ++c) {
    rows[c] = task.w + (n0 + c < n1 ? n0 + c : n1 - 1) * task.k;
  }
  for (ptrdiff_t k0 = 0; k0 < task.k; k0 += kDotBlock) {
    const ptrdiff_t k1 = k0 + kDotBlock < task.k ? k0 + kDotBlock : task.k;
    for (int row_tile = 0; row_tile < tiles.count; ++row_tile) {
      const ptrdiff_t m = m0 + tiles.begin(row_tile);
      const Bf16* x = reinterpret_cast<const Bf16*>(task.x) + m * stride;
      for (int col_tile = 0; col_tile < col_tiles; ++col_tile) {
        float* tile_sums = sums + (row_tile * col_tiles + col_tile) * kDotSums;
        DotPairsOf(tiles.size(row_tile), x, stride, rows + col_tile * kDotWeights, k0, k1,
                   2 * kDotWeights * task.k, tile_sums);
        if (k1 < task.k) continue;
        const int n = n0 + col_tile * kDotWeights;
        for (int r = 0; r < tiles.size(row_tile); ++r) {
          const float* s = tile_sums + r * kDotWeights * 16;
          float values[4];
          ReduceFour(s, s + 16, s + 32, s + 48, values);
          float* out = task.out + (m + r) * task.out_stride + n;
          for (int c = 0; c < kDotWeights && n + c < n1; ++c) {
            if (task.bias != nullptr) values[c] += task.bias[n + c];
            out[c] = task.accumulate ? out[c] + values[c] : values[c];
          }
        }
      }
    }
  }
}

void DotGemm(const Bf16Task& task, int m0, int m1, int n0, int n1, char* scratch) {
  for (int n = n0; n < n1; n += kDotPanel) {
    DotPanel(task, m0, m1, n, n + kDotPanel < n1 ? n + kDotPanel : n1,
             reinterpret_cast<float*>(scratch));
  }
}

}  // namespace

const Bf16Kernels kPairDotAvx512 = {.name = "avx512-bf16",
                                    .panel_cols = kDotPanel,
                                    .group_cols = kDotPanel,
                                    .block_rows = kDotBlockRows,
                                    .pack = DotPack,
                                    .packed_bytes = DotPackedBytes,
                                    .gemm = DotGemm,
                                    .scratch_bytes = DotScratchBytes};

}  // namespace baton::cpu
