#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/quantised_kernels.h"

// GEMMs with quantised weights. The including file has included bytes_*.h, whose registers have a
// weight row in each lane.
//
// Weights are used in place. A chunk of eight groups of a panel of rows is unpacked at a time, and
// multiplied with all rows of activations. A few rows are multiplied with each group while it is in
// registers; for more rows, and with tiles for any number, the chunk is kept in the cache. Eight
// blocks of every format are whole vectors of 16 bytes. The formats' files in kernels/formats say
// how a block looks.
namespace baton::cpu {
namespace {

constexpr int kChunkGroups = 8;  // Groups in a chunk, and in a block of 256 values.
constexpr int kQuads = kGroupValues / 4;
constexpr int kRegisterRows = 4;  // max activation rows whose sums are in registers
constexpr int kRowsAhead = 32;  // rows to the panel that is prefetched; sixteen short ones are late
constexpr int kMaxChunkBytes = 8 * 34;  // bytes of eight groups of a row, of any format

// A group of each row of a panel. Lane r is of row r.
struct Group {
  Ints w[kQuads];  // Each lane has four values, without the format's bias.
  Vec scale;
  Vec factor[2];  // WeightGroup::factor, of each half
  Vec offset_scale;
  Vec offset_factor;
};

struct QuantisedScratch {
  Group chunk[kChunkGroups];
  alignas(64) float sums[kQuantisedRows][kPanel];
  char last_rows[kPanel][kMaxChunkBytes];
};

// Returns a byte of each lane.
inline Ints Byte(Ints x, int byte) { return And(Right(x, 8 * byte), Repeat(255)); }
inline Ints SignedByte(Ints x, int byte) { return RightSigned(Left(x, 24 - 8 * byte), 24); }
inline Ints LowerBits(Ints x) { return And(x, Repeat(0x0f0f0f0f)); }
inline Ints UpperBits(Ints x) { return LowerBits(Right(x, 4)); }

// Each format has
//   kBias: the number that is subtracted from unpacked bytes
//   kSigned: true if the bytes are signed where the instructions allow this
//   kFactors: the number of factors of a group: 0 (it is 1), 1, or 2 (one of each half)
//   kOffset, kOffsetFactor: true if a group has an offset, and a factor of the offset
//   kBlockBytes, kBlockGroups: size of a block
//   Unpack(rows, groups, to, use): unpacks groups from where `rows` point to, which are whole
//     blocks, and calls use(g) after each. Group g is unpacked to to[kKeep ? g : 0]. Reads as much
//     as whole vectors of 16 bytes hold.

// Unpacks 16 bytes of each row, of which each has the lower bits of values i and i + 16.
[[gnu::always_inline]] inline void UnpackNibbles(const Ints raw[4], Ints w[kQuads]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    w[i] = LowerBits(raw[i]);
    w[i + 4] = UpperBits(raw[i]);
  }
}

// Adds the highest bits of the 32 values, which are the bits of a lane.
inline void AddFifthBits(Ints bits, Ints w[kQuads]) {
  const Ints even = Repeat(0x08040201), odd = Repeat(static_cast<int>(0x80402010));
  const auto two = [&](Ints byte, int quad) {
    w[quad] = AddHighBits(w[quad], byte, even);
    w[quad + 1] = AddHighBits(w[quad + 1], byte, odd);
  };
  two(RepeatByte<0>(bits), 0);
  two(RepeatByte<1>(bits), 2);
  two(RepeatByte<2>(bits), 4);
  two(RepeatByte<3>(bits), 6);
}

// Blocks of 32 values with an f16 scale, and perhaps an f16 offset, before their bits.
template <int kBitsOf, bool kHasOffset>
struct SmallBlocks {
  static constexpr int kBias = kBitsOf == 8 ? kSignedBias : kHasOffset ? 0 : 1 << (kBitsOf - 1);
  static constexpr bool kSigned = kBitsOf == 8;
  static constexpr int kFactors = 0;
  static constexpr bool kOffset = kHasOffset, kOffsetFactor = false;
  static constexpr int kHead = kHasOffset ? 4 : 2;
  static constexpr int kBlockBytes = kHead + kBitsOf * kGroupValues / 8;
  static constexpr int kBlockGroups = 1;

  template <bool kKeep, typename Use>
  [[gnu::always_inline]] static void Unpack(const RowsOfPanel& rows, int groups, Group* to,
                                            const Use& use) {
    Ints in[kChunkGroups * kBlockBytes / 4];  // every four bytes of the chunk
    UnpackFrom<kKeep, 0>(rows, groups, in, to, use);
  }

 private:
  template <bool kKeep, int kGroup, typename Use>
  [[gnu::always_inline]] static void UnpackFrom(const RowsOfPanel& rows, int groups, Ints* in,
                                                Group* to, const Use& use) {
    if constexpr (kGroup < kChunkGroups) {
      if (kGroup >= groups) return;
      constexpr int kBegin = kGroup * kBlockBytes, kEnd = kBegin + kBlockBytes;
#pragma GCC unroll 4
      for (int byte = (kBegin + 15) / 16 * 16; byte < kEnd; byte += 16) {
        LoadRows(rows, byte, in + byte / 4);
      }
      Group& group = to[kKeep ? kGroup : 0];
      const Ints head = in[kBegin / 4];
      group.scale = kBegin % 4 == 0 ? LowerHalves(head) : UpperHalves(head);
      if (kHasOffset) group.offset_scale = UpperHalves(head);
      constexpr int kFours = (kBlockBytes - kHead) / 4;
      Ints fours[kFours];
#pragma GCC unroll 8
      for (int i = 0; i < kFours; ++i) {
        const Ints* const from = in + (kBegin + kHead) / 4 + i;
        fours[i] = (kBegin + kHead) % 4 == 0 ? from[0] : MiddleHalves(from[0], from[1]);
      }
      if constexpr (kBitsOf == 8) {
#pragma GCC unroll 8
        for (int i = 0; i < kQuads; ++i) group.w[i] = Biased(fours[i]);
      } else if constexpr (kBitsOf == 5) {
        UnpackNibbles(fours + 1, group.w);
        AddFifthBits(fours[0], group.w);
      } else {
        UnpackNibbles(fours, group.w);
      }
      use(kGroup);
      UnpackFrom<kKeep, kGroup + 1>(rows, groups, in, to, use);
    }
  }
};

// Blocks of 256 values: q4_k and q5_k.
template <bool kFiveBits>
struct BlocksOfK {
  static constexpr int kBias = 0;
  static constexpr bool kSigned = false;
  static constexpr int kFactors = 1;
  static constexpr bool kOffset = true, kOffsetFactor = true;
  static constexpr int kHead = kFiveBits ? 48 : 16;
  static constexpr int kBlockBytes = kHead + 128;
  static constexpr int kBlockGroups = 8;

  template <bool kKeep, typename Use>
  [[gnu::always_inline]] static void Unpack(const RowsOfPanel& rows, int, Group* to,
                                            const Use& use) {
    Ints head[4];  // both scales, and the 12 bytes of k_scales.h
    LoadRows(rows, 0, head);
    const Vec scale = LowerHalves(head[0]);
    const Vec offset = Sub(Zero(), UpperHalves(head[0]));
    // Each lane has the factors of four groups.
    const Ints six_bits = Repeat(0x3f3f3f3f), two_bits = Repeat(0x30303030);
    const Ints factors[2] = {And(head[1], six_bits),
                             Or(LowerBits(head[3]), And(Right(head[1], 2), two_bits))};
    const Ints offset_factors[2] = {And(head[2], six_bits),
                                    Or(UpperBits(head[3]), And(Right(head[2], 2), two_bits))};
    Ints fifth[kQuads];
    if (kFiveBits) {
      LoadRows(rows, 16, fifth);
      LoadRows(rows, 32, fifth + 4);
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      Ints raw[kQuads];
      LoadRows(rows, kHead + 32 * pair, raw);
      LoadRows(rows, kHead + 32 * pair + 16, raw + 4);
#pragma GCC unroll 2
      for (int upper = 0; upper < 2; ++upper) {
        const int g = 2 * pair + upper;
        Group& group = to[kKeep ? g : 0];
        group.scale = scale;
        group.factor[0] = ToFloats(Byte(factors[g / 4], g % 4));
        group.offset_scale = offset;
        group.offset_factor = ToFloats(Byte(offset_factors[g / 4], g % 4));
#pragma GCC unroll 8
        for (int i = 0; i < kQuads; ++i) {
          Ints w = upper ? UpperBits(raw[i]) : LowerBits(raw[i]);
          if (kFiveBits) w = AddHighBits(w, fifth[i], Repeat(0x01010101 << g));
          group.w[i] = w;
        }
        use(g);
      }
    }
  }
};

struct BlocksOfQ6K {
  static constexpr int kBias = 32;
  static constexpr bool kSigned = false;
  static constexpr int kFactors = 2;
  static constexpr bool kOffset = false, kOffsetFactor = false;
  static constexpr int kBlockBytes = 210;
  static constexpr int kBlockGroups = 8;

  template <bool kKeep, typename Use>
  [[gnu::always_inline]] static void Unpack(const RowsOfPanel& rows, int, Group* to,
                                            const Use& use) {
    Ints factors[4];  // signed bytes, one for each half of a group
    LoadRows(rows, 192, factors);
    const Vec scale = UpperHalves(LoadFours(rows, 206));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Ints high[kQuads], low[2][kQuads];
      LoadRows(rows, 128 + 32 * half, high);
      LoadRows(rows, 128 + 32 * half + 16, high + 4);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) LoadRows(rows, 64 * half + 16 * i, low[i / 2] + i % 2 * 4);
#pragma GCC unroll 4
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int g = 4 * half + quarter;
        Group& group = to[kKeep ? g : 0];
        group.scale = scale;
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          group.factor[i] = ToFloats(SignedByte(factors[g / 2], 2 * (g % 2) + i));
        }
#pragma GCC unroll 8
        for (int i = 0; i < kQuads; ++i) {
          const Ints pair = low[quarter % 2][i];
          const Ints two = And(Right(high[i], 2 * quarter), Repeat(0x03030303));
          group.w[i] = Or(quarter < 2 ? LowerBits(pair) : UpperBits(pair), Left(two, 4));
        }
        use(g);
      }
    }
  }
};

// Rows of activations, from the first one and the first group of a chunk on.
struct RoundedRows {
  const int8_t* x;
  const float* scale;
  const int32_t* sums;
  ptrdiff_t k;

  ptrdiff_t groups() const { return k / kGroupValues; }
};

// Number of integer sums that a group's products are added in: one, or one for each half.
template <typename Format>
constexpr int kSumsOf = Format::kFactors == 2 ? 2 : 1;

// Returns what is added to the integer sum of part `part` for the bytes' bias.
template <typename Format>
inline Ints BiasOf(const int32_t* x_sums, int part) {
  return Repeat(-Format::kBias * (kSumsOf<Format> == 2 ? x_sums[part] : x_sums[0] + x_sums[1]));
}

// Adds the products of a group with a row of activations to `sum`. `dot` has the integer sums.
template <typename Format>
[[gnu::always_inline]] inline Vec AddGroup(const Group& group, const Ints* dot, float x_scale,
                                           const int32_t* x_sums, Vec sum) {
  const Vec x_scales = Broadcast(x_scale);
  Vec product = ToFloats(dot[0]);
  // All of these are integers that floats hold exactly.
  if constexpr (Format::kFactors > 0) product = Mul(product, group.factor[0]);
  if constexpr (Format::kFactors == 2) product = Fma(ToFloats(dot[1]), group.factor[1], product);
  sum = Fma(Mul(group.scale, x_scales), product, sum);
  if constexpr (Format::kOffset) {
    Vec of_offset = Broadcast(static_cast<float>(x_sums[0] + x_sums[1]));
    if constexpr (Format::kOffsetFactor) of_offset = Mul(of_offset, group.offset_factor);
    sum = Fma(Mul(group.offset_scale, x_scales), of_offset, sum);
  }
  return sum;
}

// Adds the products of a group with kRows rows of activations to `sum`.
template <typename Format, int kRows>
[[gnu::always_inline]] inline void MultiplyGroup(const Group& group, int g, const RoundedRows& in,
                                                 Vec* sum) {
  constexpr int kSums = kSumsOf<Format>;
  Ints dot[kRows][kSums];
  const int32_t* sums[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    sums[r] = in.sums + 2 * (r * in.groups() + g);
    for (int part = 0; part < kSums; ++part) dot[r][part] = BiasOf<Format>(sums[r], part);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQuads; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, in.x + r * in.k + g * kGroupValues + 4 * i, sizeof(four));
      Ints& to = dot[r][kSums == 2 ? i / 4 : 0];
      to = DotBytes<Format::kSigned>(to, group.w[i], Repeat(four));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    sum[r] = AddGroup<Format>(group, dot[r], in.scale[r * in.groups() + g], sums[r], sum[r]);
  }
}

// Prefetches the part of group g of the bytes from `ahead` on, in a later panel, into the second
// level of the cache: the first one would have to wait for it. All groups of a panel together
// prefetch a whole panel, in the order of the file.
template <typename Format>
[[gnu::always_inline]] inline void PrefetchGroup(const char* ahead, int g) {
  constexpr ptrdiff_t kBytes = Format::kBlockBytes * kPanel / Format::kBlockGroups;
  // This fence keeps the compiler from moving the prefetches of all groups to one place, where they
  // would fill the queue of loads.
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  for (ptrdiff_t at = 0; at < kBytes; at += 64) __builtin_prefetch(ahead + g * kBytes + at, 0, 2);
}

// A chunk of a panel. It is unpacked already if `unpacked` isn't null.
struct ChunkOfPanel {
  RowsOfPanel rows;
  const char* ahead;  // as much of a later panel, to be prefetched
  int groups;
  bool first;  // Sums begin at 0.
  const Group* unpacked;
};

// Adds the products of a chunk with kRows rows of activations to `out`.
template <typename Format, int kRows>
[[gnu::always_inline]] inline void MultiplyChunk(const ChunkOfPanel& chunk, const RoundedRows& in,
                                                 float (*out)[kPanel]) {
  Vec sum[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r] = chunk.first ? Zero() : Load(out[r]);
  if constexpr (kRows <= kFusedRows) {
    if (chunk.unpacked == nullptr) {
      Group group;
      Format::template Unpack<false>(
          chunk.rows, chunk.groups, &group, [&](int g) __attribute__((always_inline)) {
            PrefetchGroup<Format>(chunk.ahead, g);
            MultiplyGroup<Format, kRows>(group, g, in, sum);
          });
    }
  }
  if (kRows > kFusedRows || chunk.unpacked != nullptr) {
    for (int g = 0; g < chunk.groups; ++g) {
      MultiplyGroup<Format, kRows>(chunk.unpacked[g], g, in, sum);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) Store(out[r], sum[r]);
}

template <typename Format, int kRows = kRegisterRows>
[[gnu::noinline]] void MultiplyChunkOf(int count, const ChunkOfPanel& chunk, const RoundedRows& in,
                                       float (*out)[kPanel]) {
  if constexpr (kRows > 1) {
    if (count < kRows) return MultiplyChunkOf<Format, kRows - 1>(count, chunk, in, out);
  }
  MultiplyChunk<Format, kRows>(chunk, in, out);
}

// For instruction sets without tiles of bytes. byte_tiles.h says what tiles do.
struct NoTiles {
  static constexpr int kRows = 0;
  NoTiles(int, int) {}
};

// Adds the products of an unpacked chunk with up to sixteen rows of activations to `out`, by tiles.
template <typename Format, typename Tiles>
void MultiplyByTiles(const Tiles& tiles, int rows, const ChunkOfPanel& chunk, const RoundedRows& in,
                     float (*out)[kPanel]) {
  constexpr int kSums = kSumsOf<Format>;
  alignas(64) int32_t dots[kSums][Tiles::kRows][kPanel];
  for (int g = 0; g < chunk.groups; ++g) {
    const Group& group = chunk.unpacked[g];
    for (int part = 0; part < kSums; ++part) {
      tiles.Dot(rows, in.x + g * kGroupValues + part * kGroupValues / 2, in.k, group.w + 4 * part,
                dots[part]);
    }
    for (int r = 0; r < rows; ++r) {
      const int32_t* const x_sums = in.sums + 2 * (r * in.groups() + g);
      Ints dot[kSums];
      for (int part = 0; part < kSums; ++part) {
        dot[part] = LoadInts(dots[part][r]);
        if (Format::kBias != 0) dot[part] = Add(dot[part], BiasOf<Format>(x_sums, part));
      }
      const Vec sum = chunk.first && g == 0 ? Zero() : Load(out[r]);
      Store(out[r], AddGroup<Format>(group, dot, in.scale[r * in.groups() + g], x_sums, sum));
    }
  }
}

template <typename Format, typename Tiles>
void QuantisedGemm(const QuantisedTask& task, int m0, int m1, int n0, int n1, char* scratch) {
  auto* const memory = reinterpret_cast<QuantisedScratch*>(scratch);
  const ptrdiff_t k = task.k, all_groups = k / kGroupValues;
  constexpr bool kTiles = Tiles::kRows > 0;
  constexpr int kTogether = kTiles ? Tiles::kRows : kRegisterRows;
  const bool unpack = kTiles || m1 - m0 > kFusedRows;
  [[maybe_unused]] const Tiles tiles(m1 - m0, kGroupValues / kSumsOf<Format>);
  for (int n = n0; n < n1; n += kPanel) {
    const int outputs = n1 - n < kPanel ? n1 - n : kPanel;
    const char* const panel = task.w + n * task.row_bytes;
    for (ptrdiff_t g = 0; g < all_groups; g += kChunkGroups) {
      const int groups =
          static_cast<int>(all_groups - g < kChunkGroups ? all_groups - g : kChunkGroups);
      const ptrdiff_t bytes = groups / Format::kBlockGroups * Format::kBlockBytes;
      const ptrdiff_t before = g / Format::kBlockGroups * Format::kBlockBytes;
      ChunkOfPanel chunk = {.rows = RowsOfPanel(panel + before, task.row_bytes),
                            .ahead = panel + kRowsAhead * task.row_bytes + before * kPanel,
                            .groups = groups,
                            .first = g == 0,
                            .unpacked = nullptr};
      if (n + kPanel > n1 || (n + kPanel == n1 && groups < kChunkGroups)) {
        // There is nothing to read behind the last row. The lanes behind it repeat it.
        for (int r = 0; r < kPanel; ++r) {
          const int row = r < outputs ? r : outputs - 1;
          std::memcpy(memory->last_rows[r], panel + row * task.row_bytes + before, bytes);
        }
        chunk.rows = RowsOfPanel(memory->last_rows[0], kMaxChunkBytes);
      }
      if (unpack) {
        Format::template Unpack<true>(chunk.rows, groups, memory->chunk,
                                      [&](int at) { PrefetchGroup<Format>(chunk.ahead, at); });
        chunk.unpacked = memory->chunk;
      }
      for (int m = m0; m < m1; m += kTogether) {
        const int rows = m1 - m < kTogether ? m1 - m : kTogether;
        const RoundedRows in = {.x = task.x + m * k + g * kGroupValues,
                                .scale = task.x_scale + m * all_groups + g,
                                .sums = task.x_sums + 2 * (m * all_groups + g),
                                .k = k};
        float(*const sums)[kPanel] = memory->sums + (m - m0);
        if constexpr (kTiles) {
          MultiplyByTiles<Format>(tiles, rows, chunk, in, sums);
        } else {
          MultiplyChunkOf<Format>(rows, chunk, in, sums);
        }
      }
    }
    const Vec bias = task.bias != nullptr ? LoadFirst(task.bias + n, outputs) : Zero();
    for (int m = m0; m < m1; ++m) {
      float* const out = task.out + m * task.out_stride + n;
      Vec value = Load(memory->sums[m - m0]);
      if (task.bias != nullptr) value = Add(value, bias);
      if (task.accumulate) value = Add(LoadFirst(out, outputs), value);
      StoreFirst(out, value, outputs);
    }
  }
}

void QuantiseRow(const float* in, ptrdiff_t k, int8_t* x, float* scale, int32_t* sums) {
  for (ptrdiff_t g = 0; g < k / kGroupValues; ++g) {
    QuantiseGroup(in + g * kGroupValues, x + g * kGroupValues, scale + g, sums + 2 * g);
  }
}

template <typename Tiles = NoTiles>
constexpr QuantisedKernels QuantisedTable(const char* name,
                                          const QuantisedKernels* for_few = nullptr) {
  return {
      .name = name,
      .panel_rows = kPanel,
      .quantise = QuantiseRow,
      .gemm = {QuantisedGemm<SmallBlocks<4, false>, Tiles>,
               QuantisedGemm<SmallBlocks<4, true>, Tiles>,
               QuantisedGemm<SmallBlocks<5, false>, Tiles>,
               QuantisedGemm<SmallBlocks<5, true>, Tiles>,
               QuantisedGemm<SmallBlocks<8, false>, Tiles>, QuantisedGemm<BlocksOfK<false>, Tiles>,
               QuantisedGemm<BlocksOfK<true>, Tiles>, QuantisedGemm<BlocksOfQ6K, Tiles>},
      .scratch_bytes = sizeof(QuantisedScratch),
      .for_few = for_few};
}

}  // namespace
}  // namespace baton::cpu
