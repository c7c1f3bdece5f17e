#pragma once

// Dot products. Only kernels_*.cc include this file, after the header that defines Vec.
//
// Every dot product is summed in the same order. There are sixteen lanes. Lane l, from 0 to 15, is
// a chain of fused multiply-adds over elements l, l+16, l+32, ..., starting from zero. The last
// group of sixteen elements is filled up with zeros. ReduceFour's tree then sums the lanes.
// Grouping rows and columns, as the functions below do, only changes which sums are computed at the
// same time.
namespace baton::cpu {
namespace {

constexpr int kTileCols = 4;
constexpr int kTileSums = kTileRows * kTileCols * 16;

template <class T>
// Loads the first n > 0 elements, at most kLanes of them, and zeros into the other lanes.
inline Vec LoadWidePartial(const T* p, ptrdiff_t n) {
  T values[kLanes] = {};
  __builtin_memcpy(values, p, (n < kLanes ? n : kLanes) * sizeof(T));
  return LoadWide(values);
}
inline void StorePartial(float* p, Vec x, ptrdiff_t n) {
  float values[kLanes];
  Store(values, x);
  __builtin_memcpy(p, values, (n < kLanes ? n : kLanes) * sizeof(float));
}

// Multiplies kRows rows of x with kCols rows of weights, which are read in place. Each pair of rows
// gives sixteen partial sums, sums[row][col][16]. Rows of x must be padded with zeros to a multiple
// of sixteen elements. Prefetches the weights that lie `ahead` elements further, for the next call.
template <class T, int kRows, int kCols>
inline void DotRows(const float* x, ptrdiff_t x_stride, const T* const* rows, ptrdiff_t k,
                    ptrdiff_t ahead, float* sums) {
  Vec acc[kRows][kCols][kParts];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 16
      for (int part = 0; part < kParts; ++part) acc[r][c][part] = Zero();
    }
  }
  const T* w[kCols];
#pragma GCC unroll 16
  for (int c = 0; c < kCols; ++c) w[c] = rows[c];
  ptrdiff_t i = 0;
  for (; i + 16 <= k; i += 16) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
      __builtin_prefetch(w[c] + i + ahead);
#pragma GCC unroll 16
      for (int part = 0; part < kParts; ++part) {
        const Vec weight = LoadWide(w[c] + i + part * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          acc[r][c][part] =
              Fma(Load(x + r * x_stride + i + part * kLanes), weight, acc[r][c][part]);
        }
      }
    }
  }
  if (i < k) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 16
      for (int part = 0; part < kParts; ++part) {
        const ptrdiff_t at = i + part * kLanes;
        const Vec weight = at < k ? LoadWidePartial(w[c] + at, k - at) : Zero();
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          acc[r][c][part] = Fma(Load(x + r * x_stride + at), weight, acc[r][c][part]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 16
      for (int part = 0; part < kParts; ++part) {
        Store(sums + (r * kCols + c) * 16 + part * kLanes, acc[r][c][part]);
      }
    }
  }
}

// Widens elements [k0, k1) of n rows to floats, in the order in which DotTile reads them: [n /
// 4][part][group][4][kLanes]. A group is sixteen elements of a row, and a part is one Vec of a
// group. Missing rows and elements are zeros. Prefetches the elements that lie `ahead` further, for
// the next call.
template <class T>
inline void PackRows(const T* const* rows, int n, ptrdiff_t k0, ptrdiff_t k1, ptrdiff_t ahead,
                     float* packed) {
  const ptrdiff_t groups = RoundUp16(k1 - k0) / 16, whole = (k1 - k0) / 16;
  for (int n0 = 0; n0 < n; n0 += kTileCols) {
    float* tile = packed + n0 * groups * 16;
    const ptrdiff_t part_floats = groups * kTileCols * kLanes;
    for (int c = 0; c < kTileCols; ++c) {
      float* to = tile + c * kLanes;
      if (n0 + c >= n) {
        for (ptrdiff_t group = 0; group < groups; ++group, to += kTileCols * kLanes) {
          for (int part = 0; part < kParts; ++part) Store(to + part * part_floats, Zero());
        }
        continue;
      }
      const T* from = rows[n0 + c] + k0;
      for (ptrdiff_t group = 0; group < whole; ++group) {
        __builtin_prefetch(from + ahead, 0, 2);
#pragma GCC unroll 16
        for (int part = 0; part < kParts; ++part) {
          Store(to + part * part_floats, LoadWide(from + part * kLanes));
        }
        to += kTileCols * kLanes;
        from += 16;
      }
      if (whole < groups) {
        const ptrdiff_t left = k1 - k0 - whole * 16;
        for (int part = 0; part < kParts; ++part) {
          const ptrdiff_t at = part * kLanes;
          Store(to + part * part_floats,
                at < left ? LoadWidePartial(from + at, left - at) : Zero());
        }
      }
    }
  }
}

// A tile of four weight rows that PackRows has widened.
struct PackedTile {
  PackedTile(const float* packed, ptrdiff_t group_count) : tile(packed), groups(group_count) {}
  Vec At(int c, ptrdiff_t group, int part) const {
    return Load(tile + ((part * groups + group) * kTileCols + c) * kLanes);
  }
  const float* tile;
  ptrdiff_t groups;
};

// A tile of four weight rows that are read in place. Their number of elements must be a multiple of
// sixteen.
template <class T>
struct RawTile {
  RawTile(const T* const* w, ptrdiff_t k0) : rows{w[0] + k0, w[1] + k0, w[2] + k0, w[3] + k0} {
    static_assert(kTileCols == 4);
  }
  Vec At(int c, ptrdiff_t group, int part) const {
    return LoadWide(rows[c] + group * 16 + part * kLanes);
  }
  const T* rows[kTileCols];
};

// Adds the products of kRows rows of x with the four weight rows of `tile` (a PackedTile or a
// RawTile) to sums[row][col][16]. If `first`, the sums start from zero.
template <int kRows, class Tile>
inline void DotTile(const float* x, ptrdiff_t x_stride, const Tile tile, ptrdiff_t groups,
                    bool first, float* sums) {
#pragma GCC unroll 16
  for (int part = 0; part < kParts; ++part) {
    float* part_sums = sums + part * kLanes;
    Vec acc[kRows][kTileCols];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kTileCols; ++c) {
        acc[r][c] = first ? Zero() : Load(part_sums + (r * kTileCols + c) * 16);
      }
    }
    const float* in = x + part * kLanes;
    for (ptrdiff_t group = 0; group < groups; ++group, in += 16) {
      Vec input[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) input[r] = Load(in + r * x_stride);
#pragma GCC unroll 16
      for (int c = 0; c < kTileCols; ++c) {
        const Vec weight = tile.At(c, group, part);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) acc[r][c] = Fma(input[r], weight, acc[r][c]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kTileCols; ++c) {
        Store(part_sums + (r * kTileCols + c) * 16, acc[r][c]);
      }
    }
  }
}

// Calls DotTile for `rows` rows, which may be 1 to kRows.
template <class Tile, int kRows = kTileRows>
inline void DotTileOf(int rows, const float* x, ptrdiff_t x_stride, const Tile& tile,
                      ptrdiff_t groups, bool first, float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return DotTileOf<Tile, kRows - 1>(rows, x, x_stride, tile, groups, first, sums);
    }
  }
  DotTile<kRows>(x, x_stride, tile, groups, first, sums);
}

// Cuts `rows` rows into tiles of at most kTileRows rows and nearly equal height.
struct RowTiles {
  explicit RowTiles(int row_count) : rows(row_count), count((rows + kTileRows - 1) / kTileRows) {}
  int begin(int tile) const { return tile * rows / count; }
  int size(int tile) const { return begin(tile + 1) - begin(tile); }
  int rows, count;
};

}  // namespace
}  // namespace baton::cpu
