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
// registers; for more rows, the chunk is kept in the cache. The formats' files in kernels/formats
// say how a block looks.
namespace baton::cpu {
namespace {

constexpr int kChunkGroups = 8;  // Groups in a chunk, and in a block of 256 values.
constexpr int kQuads = kGroupValues / 4;
constexpr int kRegisterRows = 4;  // activation rows whose sums are in registers

// Eight groups of a panel. Lane r is of row r.
struct Chunk {
  Ints w[kChunkGroups][kQuads];  // Each lane has four values, without the format's bias.
  Vec scale[kChunkGroups];
  Vec factor[kChunkGroups][2];  // WeightGroup::factor, of each half
  Vec offset_scale[kChunkGroups];
  Vec offset_factor[kChunkGroups];
  const char* next;  // the same groups of the next panel
};

struct QuantisedScratch {
  Chunk chunk;
  alignas(64) float sums[kQuantisedRows][kPanel];
};

inline Ints LowerBits(Ints x) { return And(x, Repeat(0x0f0f0f0f)); }
inline Ints UpperBits(Ints x) { return LowerBits(Right(x, 4)); }

#define BATON_INLINE inline __attribute__((always_inline))

// Each format has
//   kBias: the number that is subtracted from unpacked bytes
//   kSigned: true if the bytes are signed where the instructions allow this
//   kFactors: the number of factors of a group: 0 (it is 1), 1, or 2 (one of each half)
//   kOffset, kOffsetFactor: true if a group has an offset, and a factor of the offset
//   kBlockBytes, kBlockGroups: size of a block
//   Unpack(rows, groups, chunk, use): reads groups from where `rows` point to, which are whole
//     blocks. Calls use(g, w) for each in order, with Chunk::w of the group; the rest of `chunk` is
//     set before.

// Unpacks 16 bytes of each row, of which each has the lower bits of values i and i + 16.
inline void UnpackNibbles(const char* const* rows, ptrdiff_t offset, Ints w[kQuads]) {
  Ints raw[4];
  LoadRows(rows, offset, raw);
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

  template <typename Use>
  static BATON_INLINE void Unpack(const char* const* rows, int groups, Chunk* chunk,
                                  const Use& use) {
    for (int g = 0; g < groups; ++g) {
      const ptrdiff_t block = g * kBlockBytes;
      Ints w[kQuads];
      const Ints head = LoadFours(rows, block);  // the scale, and the offset or two values
      chunk->scale[g] = LowerHalves(head);
      if (kHasOffset) chunk->offset_scale[g] = UpperHalves(head);
      if constexpr (kBitsOf == 8) {
        LoadRows(rows, block + kHead, w);
        LoadRows(rows, block + kHead + 16, w + 4);
#pragma GCC unroll 8
        for (int i = 0; i < kQuads; ++i) w[i] = Biased(w[i]);
      } else if constexpr (kBitsOf == 5) {
        Ints first[4];  // Its first four bytes are the highest bits.
        LoadRows(rows, block + kHead, first);
        UnpackNibbles(rows, block + kHead + 4, w);
        AddFifthBits(first[0], w);
      } else {
        UnpackNibbles(rows, block + kHead, w);
      }
      use(g, w);
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

  template <typename Use>
  static BATON_INLINE void Unpack(const char* const* rows, int, Chunk* chunk, const Use& use) {
    Ints head[4];  // both scales, and the 12 bytes of k_scales.h
    LoadRows(rows, 0, head);
    const Vec scale = LowerHalves(head[0]);
    const Vec offset = Sub(Zero(), UpperHalves(head[0]));
    for (int g = 0; g < kChunkGroups; ++g) {
      const int shift = 8 * (g % 4);
      Ints factor, offset_factor;
      if (g < 4) {
        factor = And(Right(head[1], shift), Repeat(63));
        offset_factor = And(Right(head[2], shift), Repeat(63));
      } else {
        const auto high = [&](Ints from) {
          return Left(And(Right(from, shift + 6), Repeat(3)), 4);
        };
        factor = Or(And(Right(head[3], shift), Repeat(15)), high(head[1]));
        offset_factor = Or(And(Right(head[3], shift + 4), Repeat(15)), high(head[2]));
      }
      chunk->scale[g] = scale;
      chunk->factor[g][0] = ToFloats(factor);
      chunk->offset_scale[g] = offset;
      chunk->offset_factor[g] = ToFloats(offset_factor);
    }
    Ints fifth[kQuads];
    if (kFiveBits) {
      LoadRows(rows, 16, fifth);
      LoadRows(rows, 32, fifth + 4);
    }
    for (int pair = 0; pair < 4; ++pair) {
      Ints raw[kQuads];
      LoadRows(rows, kHead + 32 * pair, raw);
      LoadRows(rows, kHead + 32 * pair + 16, raw + 4);
      Ints w[kQuads];
#pragma GCC unroll 8
      for (int i = 0; i < kQuads; ++i) {
        w[i] = LowerBits(raw[i]);
        if (kFiveBits) w[i] = AddHighBits(w[i], fifth[i], Repeat(0x01010101 << 2 * pair));
      }
      use(2 * pair, w);
#pragma GCC unroll 8
      for (int i = 0; i < kQuads; ++i) {
        w[i] = UpperBits(raw[i]);
        if (kFiveBits) w[i] = AddHighBits(w[i], fifth[i], Repeat(0x02020202 << 2 * pair));
      }
      use(2 * pair + 1, w);
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

  template <typename Use>
  static BATON_INLINE void Unpack(const char* const* rows, int, Chunk* chunk, const Use& use) {
    Ints factors[4];  // signed bytes, one for each half of a group
    LoadRows(rows, 192, factors);
    const Vec scale = UpperHalves(LoadFours(rows, 206));
    for (int g = 0; g < kChunkGroups; ++g) {
      chunk->scale[g] = scale;
      for (int half = 0; half < 2; ++half) {
        const int byte = 2 * (g % 2) + half;
        chunk->factor[g][half] = ToFloats(RightSigned(Left(factors[g / 2], 24 - 8 * byte), 24));
      }
    }
    for (int half = 0; half < 2; ++half) {
      Ints high[kQuads], low[2][kQuads];
      LoadRows(rows, 128 + 32 * half, high);
      LoadRows(rows, 128 + 32 * half + 16, high + 4);
      for (int i = 0; i < 4; ++i) LoadRows(rows, 64 * half + 16 * i, low[i / 2] + i % 2 * 4);
      for (int quarter = 0; quarter < 4; ++quarter) {
        Ints w[kQuads];
#pragma GCC unroll 8
        for (int i = 0; i < kQuads; ++i) {
          const Ints pair = low[quarter % 2][i];
          const Ints two = And(Right(high[i], 2 * quarter), Repeat(0x03030303));
          w[i] = Or(quarter < 2 ? LowerBits(pair) : UpperBits(pair), Left(two, 4));
        }
        use(4 * half + quarter, w);
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

// Adds the products of a group with kRows rows of activations to `sum`.
template <typename Format, int kRows>
BATON_INLINE void MultiplyGroup(const Ints* w, const Chunk& chunk, int g, const RoundedRows& in,
                                Vec* sum) {
  constexpr int kHalves = Format::kFactors == 2 ? 2 : 1;
  Ints dot[kRows][kHalves];
  const int32_t* sums[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    sums[r] = in.sums + 2 * (r * in.groups() + g);
    if constexpr (Format::kBias == 0) {
      dot[r][0] = Repeat(0);
    } else if constexpr (kHalves == 1) {
      dot[r][0] = Repeat(-Format::kBias * (sums[r][0] + sums[r][1]));
    } else {
      dot[r][0] = Repeat(-Format::kBias * sums[r][0]);
      dot[r][1] = Repeat(-Format::kBias * sums[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQuads; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, in.x + r * in.k + g * kGroupValues + 4 * i, sizeof(four));
      Ints& to = dot[r][kHalves == 2 ? i / 4 : 0];
      to = DotBytes<Format::kSigned>(to, w[i], Repeat(four));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Vec x_scale = Broadcast(in.scale[r * in.groups() + g]);
    Vec product = ToFloats(dot[r][0]);
    // All of these are integers that floats hold exactly.
    if constexpr (Format::kFactors > 0) product = Mul(product, chunk.factor[g][0]);
    if constexpr (kHalves == 2) {
      product = Fma(ToFloats(dot[r][1]), chunk.factor[g][1], product);
    }
    sum[r] = Fma(Mul(chunk.scale[g], x_scale), product, sum[r]);
    if constexpr (Format::kOffset) {
      Vec of_offset = Broadcast(static_cast<float>(sums[r][0] + sums[r][1]));
      if constexpr (Format::kOffsetFactor) of_offset = Mul(of_offset, chunk.offset_factor[g]);
      sum[r] = Fma(Mul(chunk.offset_scale[g], x_scale), of_offset, sum[r]);
    }
  }
}

// Prefetches what a group takes in the next panel into the second level of the cache: the first one
// would have to wait for it.
template <typename Format>
BATON_INLINE void PrefetchNext(const Chunk& chunk, int g) {
  constexpr ptrdiff_t kBytes = Format::kBlockBytes * kPanel / Format::kBlockGroups;
  const char* const begin = chunk.next + g * kBytes;
  for (ptrdiff_t at = 0; at < kBytes; at += 64) __builtin_prefetch(begin + at, 0, 2);
}

// Multiplies a chunk with kRows rows of activations. Unpacks it first, unless `rows` is null.
// Adds the products to `out`, or begins at 0 with `first`.
template <typename Format, int kRows>
BATON_INLINE void MultiplyChunk(const char* const* rows, int groups, const RoundedRows& in,
                                bool first, Chunk* chunk, float (*out)[kPanel]) {
  Vec sum[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r] = first ? Zero() : Load(out[r]);
  if (rows != nullptr) {
    Format::Unpack(
        rows, groups, chunk, [&](int g, const Ints* w) __attribute__((always_inline)) {
          PrefetchNext<Format>(*chunk, g);
          MultiplyGroup<Format, kRows>(w, *chunk, g, in, sum);
        });
  } else {
    for (int g = 0; g < groups; ++g) MultiplyGroup<Format, kRows>(chunk->w[g], *chunk, g, in, sum);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) Store(out[r], sum[r]);
}

template <typename Format, int kRows = kRegisterRows>
void MultiplyChunkOf(int count, const char* const* rows, int groups, const RoundedRows& in,
                     bool first, Chunk* chunk, float (*out)[kPanel]) {
  if constexpr (kRows > 1) {
    if (count < kRows) {
      return MultiplyChunkOf<Format, kRows - 1>(count, rows, groups, in, first, chunk, out);
    }
  }
  if (rows != nullptr) {
    MultiplyChunk<Format, kRows>(rows, groups, in, first, chunk, out);
  } else {
    MultiplyChunk<Format, kRows>(nullptr, groups, in, first, chunk, out);
  }
}

template <typename Format>
void QuantisedGemm(const QuantisedTask& task, int m0, int m1, int n0, int n1, char* scratch) {
  auto* const memory = reinterpret_cast<QuantisedScratch*>(scratch);
  const ptrdiff_t k = task.k, all_groups = k / kGroupValues;
  for (int n = n0; n < n1; n += kPanel) {
    const int outputs = n1 - n < kPanel ? n1 - n : kPanel;
    const char* rows[kPanel];
    // The lanes behind the last row repeat it.
    for (int r = 0; r < kPanel; ++r) {
      rows[r] = task.w + (n + (r < outputs ? r : outputs - 1)) * task.row_bytes;
    }
    for (ptrdiff_t g = 0; g < all_groups; g += kChunkGroups) {
      const int groups =
          static_cast<int>(all_groups - g < kChunkGroups ? all_groups - g : kChunkGroups);
      const ptrdiff_t bytes = groups / Format::kBlockGroups * Format::kBlockBytes;
      // The next panel follows this one.
      Chunk& chunk = memory->chunk;
      chunk.next = rows[0] + kPanel * task.row_bytes +
                   (g / Format::kBlockGroups * Format::kBlockBytes) * (kPanel - 1);
      const bool few = m1 - m0 <= kRegisterRows;
      if (!few) {
        Format::Unpack(rows, groups, &chunk, [&](int at, const Ints* w) {
          PrefetchNext<Format>(chunk, at);
          for (int i = 0; i < kQuads; ++i) StoreInts(&chunk.w[at][i], w[i]);
        });
      }
      for (int m = m0; m < m1; m += kRegisterRows) {
        MultiplyChunkOf<Format>(m1 - m < kRegisterRows ? m1 - m : kRegisterRows,
                                few ? rows : nullptr, groups,
                                {.x = task.x + m * k + g * kGroupValues,
                                 .scale = task.x_scale + m * all_groups + g,
                                 .sums = task.x_sums + 2 * (m * all_groups + g),
                                 .k = k},
                                g == 0, &chunk, memory->sums + (m - m0));
      }
      for (int r = 0; r < kPanel; ++r) rows[r] += bytes;
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

constexpr QuantisedKernels QuantisedTable(const char* name) {
  return {.name = name,
          .panel_rows = kPanel,
          .quantise = QuantiseRow,
          .gemm = {QuantisedGemm<SmallBlocks<4, false>>, QuantisedGemm<SmallBlocks<4, true>>,
                   QuantisedGemm<SmallBlocks<5, false>>, QuantisedGemm<SmallBlocks<5, true>>,
                   QuantisedGemm<SmallBlocks<8, false>>, QuantisedGemm<BlocksOfK<false>>,
                   QuantisedGemm<BlocksOfK<true>>, QuantisedGemm<BlocksOfQ6K>},
          .scratch_bytes = sizeof(QuantisedScratch)};
}

}  // namespace
}  // namespace baton::cpu

#undef BATON_INLINE
