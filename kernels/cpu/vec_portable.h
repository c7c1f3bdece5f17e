#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_kernels.h"

// Sixteen float lanes as plain C++: the reference implementation of every lane operation, for tests
// of vec_avx2.h and vec_avx512.h. Pointers may be unaligned. Functions of one Vec work on each lane
// by itself. Only kernels_portable.cc includes this file. `__builtin_fmaf` rounds once on every
// machine; where the processor has no such instruction, the C library computes it.
namespace baton::cpu {
namespace {

struct Vec {
  float lane[4];
};

constexpr int kLanes = 4;  // lanes of one Vec
constexpr int kParts = 4;  // Vecs that make sixteen lanes
constexpr int kTileRows = 2;
constexpr int kAttendRows = 2;  // rows of probabilities per register tile
constexpr int kAttendVecs = 8;  // Vecs of sums in an attention register tile
constexpr int kSmallRows = 3;
constexpr int kDotCols[kSmallRows] = {4, 2, 1};

template <class Function>
inline Vec Map(Function function) {
  Vec out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = function(i);
  return out;
}
inline uint32_t Bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
inline float FromBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

inline Vec Broadcast(float x) {
  return Map([&](int) { return x; });
}
inline Vec Zero() { return Broadcast(0.0f); }
inline Vec Load(const float* p) {
  Vec x;
  __builtin_memcpy(x.lane, p, sizeof(x.lane));
  return x;
}
inline void Store(float* p, Vec x) { __builtin_memcpy(p, x.lane, sizeof(x.lane)); }
inline Vec Add(Vec a, Vec b) {
  return Map([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec Sub(Vec a, Vec b) {
  return Map([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec Mul(Vec a, Vec b) {
  return Map([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec Div(Vec a, Vec b) {
  return Map([&](int i) { return a.lane[i] / b.lane[i]; });
}
// Returns a * b + c, rounded once.
inline Vec Fma(Vec a, Vec b, Vec c) {
  return Map([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
// Returns the larger of a and b, and b if either is NaN.
inline Vec Max(Vec a, Vec b) {
  return Map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// Returns the largest lane. No lane may be NaN.
inline float MaxLane(Vec x) {
  float lanes[kLanes];
  Store(lanes, x);
  float max = lanes[0];
  for (int i = 1; i < kLanes; ++i) max = lanes[i] > max ? lanes[i] : max;
  return max;
}
inline Vec RoundToEven(Vec x) {
  return Map([&](int i) { return __builtin_nearbyintf(x.lane[i]); });
}
// Returns 2^n for integral n in [-126, 127].
inline Vec PowerOfTwo(Vec n) {
  return Map([&](int i) {
    const bool inside = n.lane[i] >= -126 && n.lane[i] <= 127;
    return FromBits((inside ? static_cast<int32_t>(n.lane[i]) + 127 : 1) << 23);
  });
}
// Returns `then` in lanes where a < b, and `other` elsewhere. NaN is not less than anything.
inline Vec SelectLess(Vec a, Vec b, Vec then, Vec other) {
  return Map([&](int i) { return a.lane[i] < b.lane[i] ? then.lane[i] : other.lane[i]; });
}

inline float Wide(Bf16 x) { return FromBits(static_cast<uint32_t>(x.bits) << 16); }
inline float Wide(F16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31,
                 fraction = x.bits & 0x3ffu;
  if (exponent == 31) {
    return FromBits(sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0));
  }
  if (exponent != 0) return FromBits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return FromBits(sign | Bits(magnitude));
}
inline Bf16 NarrowBf16(float x) {
  const uint32_t bits = Bits(x);
  if (x != x) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline F16 NarrowF16(float x) {
  const uint32_t bits = Bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t out;
  if (magnitude > 0x7f800000u) {
    out = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more
    out = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: multiples of 2^-24
    out = static_cast<uint32_t>(__builtin_nearbyintf(FromBits(magnitude) * 0x1p24f));
  } else {
    out = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  }
  return {static_cast<uint16_t>(sign | out)};
}

inline Vec LoadWide(const float* p) { return Load(p); }
template <class T>
inline Vec LoadWide(const T* p) {
  T values[kLanes];
  __builtin_memcpy(values, p, sizeof(values));
  return Map([&](int i) { return Wide(values[i]); });
}

// Stores the lanes of x as elements of the type of `p`, rounded to nearest even. Values that are
// too large for the type become infinite; NaN stays NaN.
inline void StoreNarrow(float* p, Vec x) { Store(p, x); }
inline void StoreNarrow(F16* p, Vec x) {
  F16 values[kLanes];
  for (int i = 0; i < kLanes; ++i) values[i] = NarrowF16(x.lane[i]);
  __builtin_memcpy(p, values, sizeof(values));
}
inline void StoreNarrow(Bf16* p, Vec x) {
  Bf16 values[kLanes];
  for (int i = 0; i < kLanes; ++i) values[i] = NarrowBf16(x.lane[i]);
  __builtin_memcpy(p, values, sizeof(values));
}

inline float ReduceOne(const float* p) {
  float sum[16];
  __builtin_memcpy(sum, p, sizeof(sum));
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
  }
  return sum[0];
}
// Sums the sixteen lanes of each of four arrays, and stores the four sums in `out`. The tree adds
// lanes 8 to 15 to lanes 0 to 7, then lanes 4 to 7 to lanes 0 to 3, then lanes 2 and 3 to lanes 0
// and 1, and last lane 1 to lane 0.
inline void ReduceFour(const float* a, const float* b, const float* c, const float* d, float* out) {
  const float sums[] = {ReduceOne(a), ReduceOne(b), ReduceOne(c), ReduceOne(d)};
  __builtin_memcpy(out, sums, sizeof(sums));
}

// Transposes kLanes rows of kLanes floats in place.
inline void TransposeRows(float* rows) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float lane = rows[i * kLanes + j];
      rows[i * kLanes + j] = rows[j * kLanes + i];
      rows[j * kLanes + i] = lane;
    }
  }
}

}  // namespace
}  // namespace baton::cpu
