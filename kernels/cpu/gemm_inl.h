#pragma once

// GEMMs in the summation order that dot_inl.h describes. Only kernels_*.cc include this file, after
// dot_inl.h.
namespace baton::cpu {
namespace {

inline void Finish(const GemmTask& task, ptrdiff_t m, ptrdiff_t n, const float* sums, int cols) {
  float* out = task.out + m * task.out_stride + n;
  if (cols == kTileCols) {
    float values[kTileCols];
    for (int c = 0; c < kTileCols; ++c) values[c] = sums[c];
    if (task.bias != nullptr) {
      for (int c = 0; c < kTileCols; ++c) values[c] += task.bias[n + c];
    }
    if (task.accumulate) {
      for (int c = 0; c < kTileCols; ++c) values[c] = out[c] + values[c];
    }
    __builtin_memcpy(out, values, sizeof(values));
    return;
  }
  for (int c = 0; c < cols; ++c) {
    float value = sums[c];
    if (task.bias != nullptr) value += task.bias[n + c];
    out[c] = task.accumulate ? out[c] + value : value;
  }
}

inline void FinishTile(const GemmTask& task, int m, int rows, int n, int n1, const float* sums) {
  for (int r = 0; r < rows; ++r, sums += kTileCols * 16) {
    float result[kTileCols];
    ReduceFour(sums, sums + 16, sums + 32, sums + 48, result);
    Finish(task, m + r, n, result, n1 - n < kTileCols ? n1 - n : kTileCols);
  }
}

// Multiplies one panel of weights (weight rows [n0, n1)) with the activation rows [m0, m1), one
// block of kKBlock inputs after another. If there are many activation rows, each block of weights
// is widened once and all tiles of activation rows use this copy from the cache. If there are few,
// each tile widens the weights while loading them into registers. The sums stay in `scratch`
// between blocks.
template <class T>
void GemmPanel(const GemmTask& task, int m0, int m1, int n0, int n1, float* scratch) {
  float* packed = scratch;
  float* sums = scratch + kPanelCols * kKBlock;
  const int col_tiles = (n1 - n0 + kTileCols - 1) / kTileCols;
  const RowTiles tiles(m1 - m0);
  // Pointers to the weight rows. If the last tile has fewer than kTileCols rows, it is filled up
  // with pointers to the last row, and the additional results are not used.
  const T* rows[kPanelCols + kTileCols];
  for (int c = 0; c < col_tiles * kTileCols; ++c) {
    rows[c] = static_cast<const T*>(task.w) + (n0 + c < n1 ? n0 + c : n1 - 1) * task.k;
  }

  for (ptrdiff_t k0 = 0; k0 < task.k; k0 += kKBlock) {
    const ptrdiff_t k1 = k0 + kKBlock < task.k ? k0 + kKBlock : task.k;
    const ptrdiff_t groups = RoundUp16(k1 - k0) / 16;
    const bool last = k1 == task.k, raw = m1 - m0 <= kRawRows && (k1 - k0) % 16 == 0;
    if (raw) {
      for (int col_tile = 0; col_tile < col_tiles; ++col_tile) {
        const T* const* tile_rows = rows + col_tile * kTileCols;
        if (!last) {
          for (int c = 0; c < kTileCols; ++c) {
            const char* next = reinterpret_cast<const char*>(tile_rows[c] + k1);
            for (size_t at = 0; at < kKBlock * sizeof(T); at += 64) {
              __builtin_prefetch(next + at, 0, 2);
            }
          }
        }
        for (int row_tile = 0; row_tile < tiles.count; ++row_tile) {
          const int m = m0 + tiles.begin(row_tile);
          float* tile_sums = sums + (row_tile * col_tiles + col_tile) * kTileSums;
          DotTileOf(tiles.size(row_tile), task.x + m * task.x_stride + k0, task.x_stride,
                    RawTile<T>(tile_rows, k0), groups, k0 == 0, tile_sums);
          if (last) {
            FinishTile(task, m, tiles.size(row_tile), n0 + col_tile * kTileCols, n1, tile_sums);
          }
        }
      }
      continue;
    }
    PackRows(rows, col_tiles * kTileCols, k0, k1, kKBlock, packed);
    for (int row_tile = 0; row_tile < tiles.count; ++row_tile) {
      const int m = m0 + tiles.begin(row_tile);
      for (int col_tile = 0; col_tile < col_tiles; ++col_tile) {
        float* tile_sums = sums + (row_tile * col_tiles + col_tile) * kTileSums;
        DotTileOf(tiles.size(row_tile), task.x + m * task.x_stride + k0, task.x_stride,
                  PackedTile(packed + col_tile * kTileCols * groups * 16, groups), groups, k0 == 0,
                  tile_sums);
        if (last) {
          FinishTile(task, m, tiles.size(row_tile), n0 + col_tile * kTileCols, n1, tile_sums);
        }
      }
    }
  }
}

// Computes one tile of a GEMM with few rows. Such a GEMM is bound by reading the weights, which are
// widened while they are loaded into registers.
template <class T, int kRows, int kCols>
inline void SmallTile(const GemmTask& task, ptrdiff_t m, ptrdiff_t n) {
  constexpr int kQuads = (kCols + 3) / 4;
  float sums[kRows * kCols * 16];
  const T* rows[kCols];
  for (int c = 0; c < kCols; ++c) rows[c] = static_cast<const T*>(task.w) + (n + c) * task.k;
  DotRows<T, kRows, kCols>(task.x + m * task.x_stride, task.x_stride, rows, task.k, kCols * task.k,
                           sums);
  for (int r = 0; r < kRows; ++r) {
    float result[4 * kQuads];
    const float* s = sums + r * kCols * 16;
    for (int c = 0; c < kCols; c += 4) {
      const int left = kCols - c - 1;
      ReduceFour(s + c * 16, s + (c + (left < 1 ? left : 1)) * 16,
                 s + (c + (left < 2 ? left : 2)) * 16, s + (c + (left < 3 ? left : 3)) * 16,
                 result + c);
    }
    Finish(task, m + r, n, result, kCols);
  }
}

template <class T, int kRows>
inline void SmallRows(const GemmTask& task, int m, int n0, int n1) {
  constexpr int kCols = kDotCols[kRows - 1];
  int n = n0;
  for (; n + kCols <= n1; n += kCols) SmallTile<T, kRows, kCols>(task, m, n);
  for (; n < n1; ++n) SmallTile<T, kRows, 1>(task, m, n);
}

template <class T, int kRows = kSmallRows>
void GemmSmallOf(const GemmTask& task, int m0, int m1, int n0, int n1) {
  if constexpr (kRows > 1) {
    if (m1 - m0 < kRows) return GemmSmallOf<T, kRows - 1>(task, m0, m1, n0, n1);
  }
  SmallRows<T, kRows>(task, m0, n0, n1);
}

void Gemm(const GemmTask& task, int m0, int m1, int n0, int n1, float* scratch) {
  switch (task.type) {
    case Element::kF32:
      return GemmPanel<float>(task, m0, m1, n0, n1, scratch);
    case Element::kF16:
      return GemmPanel<F16>(task, m0, m1, n0, n1, scratch);
    case Element::kBf16:
      return GemmPanel<Bf16>(task, m0, m1, n0, n1, scratch);
  }
}

void GemmSmall(const GemmTask& task, int m0, int m1, int n0, int n1) {
  switch (task.type) {
    case Element::kF32:
      return GemmSmallOf<float>(task, m0, m1, n0, n1);
    case Element::kF16:
      return GemmSmallOf<F16>(task, m0, m1, n0, n1);
    case Element::kBf16:
      return GemmSmallOf<Bf16>(task, m0, m1, n0, n1);
  }
}

// Floats of scratch memory: a block of weights converted to float, and the sums of all tiles of
// kPanelCols outputs.
constexpr size_t kGemmScratch = kPanelCols * kKBlock + ((kBlockRows + kTileRows - 1) / kTileRows) *
                                                           ((kPanelCols + 3) / 4) * kTileSums;

}  // namespace
}  // namespace baton::cpu
