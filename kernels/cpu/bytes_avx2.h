#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/cpu/quantised_kernels.h"
#include "kernels/cpu/vec_avx2.h"

// Eight lanes of four bytes as one AVX2 register, for weights of eight rows. bytes_vnni.h has the
// same names, and says more. Only kernels_avx2.cc includes this file; everything here has internal
// linkage.
namespace baton::cpu {
namespace {

using Ints = __m256i;

constexpr int kPanel = 8;
constexpr int kFusedRows = 1;
constexpr int kSignedBias = 0;

inline Ints Repeat(int x) { return _mm256_set1_epi32(x); }
inline Ints LoadInts(const void* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline void StoreInts(void* p, Ints x) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), x); }
inline Ints And(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints Or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints Right(Ints x, int bits) { return _mm256_srli_epi32(x, bits); }
inline Ints Left(Ints x, int bits) { return _mm256_slli_epi32(x, bits); }
inline Ints RightSigned(Ints x, int bits) { return _mm256_srai_epi32(x, bits); }
inline Vec ToFloats(Ints x) { return _mm256_cvtepi32_ps(x); }
inline Ints Biased(Ints signed_bytes) { return signed_bytes; }

inline Ints AddHighBits(Ints x, Ints bits, Ints which) {
  const Ints none = _mm256_cmpeq_epi8(And(bits, which), _mm256_setzero_si256());
  return Or(x, _mm256_andnot_si256(none, _mm256_set1_epi8(16)));
}
template <int kByte>
inline Ints RepeatByte(Ints x) {
  const int from = kByte * 0x01010101;
  return _mm256_shuffle_epi8(
      x, _mm256_broadcastsi128_si256(
             _mm_set_epi32(from + 0x0c0c0c0c, from + 0x08080808, from + 0x04040404, from)));
}

// Sums of two products fit into 16 bits: unsigned weights are at most 63, signed ones at least
// -128.
template <bool kSigned>
inline Ints DotBytes(Ints sum, Ints w, Ints x) {
  const Ints pairs = kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                             : _mm256_maddubs_epi16(w, x);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

[[gnu::always_inline]] inline __m128i Load16(const char* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

[[gnu::always_inline]] inline void LoadRows(const RowsOfPanel& rows, ptrdiff_t offset,
                                            Ints out[4]) {
  Ints in[4];  // Rows i and i + 4.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    in[i] = _mm256_set_m128i(Load16(rows.At(i + 4) + offset), Load16(rows.At(i) + offset));
  }
  const Ints a = _mm256_unpacklo_epi32(in[0], in[1]), b = _mm256_unpackhi_epi32(in[0], in[1]);
  const Ints c = _mm256_unpacklo_epi32(in[2], in[3]), d = _mm256_unpackhi_epi32(in[2], in[3]);
  out[0] = _mm256_unpacklo_epi64(a, c);
  out[1] = _mm256_unpackhi_epi64(a, c);
  out[2] = _mm256_unpacklo_epi64(b, d);
  out[3] = _mm256_unpackhi_epi64(b, d);
}

inline Ints MiddleHalves(Ints low, Ints high) {
  return _mm256_blend_epi16(Right(low, 16), Left(high, 16), 0xaa);
}

inline Vec LowerHalves(Ints x) {
  const Ints lower = And(x, Repeat(0xffff));
  return _mm256_cvtph_ps(
      _mm_packus_epi32(_mm256_castsi256_si128(lower), _mm256_extracti128_si256(lower, 1)));
}
inline Vec UpperHalves(Ints x) { return LowerHalves(Right(x, 16)); }

[[gnu::always_inline]] inline Ints LoadFours(const RowsOfPanel& rows, ptrdiff_t offset) {
  const auto load = [&](int row) {
    int32_t four;
    std::memcpy(&four, rows.At(row) + offset, sizeof(four));
    return four;
  };
  return _mm256_set_epi32(load(7), load(6), load(5), load(4), load(3), load(2), load(1), load(0));
}

inline Ints FirstLanes(int count) {
  return _mm256_cmpgt_epi32(Repeat(count), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}
inline void StoreFirst(float* p, Vec x, int count) { _mm256_maskstore_ps(p, FirstLanes(count), x); }
inline Vec LoadFirst(const float* p, int count) { return _mm256_maskload_ps(p, FirstLanes(count)); }

inline void QuantiseGroup(const float* in, int8_t* x, float* scale, int32_t sums[2]) {
  const Vec no_sign = _mm256_castsi256_ps(Repeat(0x7fffffff));
  const Vec infinite = Broadcast(__builtin_inff());
  Vec largest = Zero(), finite = _mm256_castsi256_ps(Repeat(-1));
  for (int i = 0; i < kGroupValues; i += kLanes) {
    const Vec abs = _mm256_and_ps(Load(in + i), no_sign);
    finite = _mm256_and_ps(finite, _mm256_cmp_ps(abs, infinite, _CMP_LT_OQ));
    largest = Max(largest, abs);
  }
  *scale = _mm256_movemask_ps(finite) == 0xff ? MaxLane(largest) / 127 : __builtin_nanf("");
  sums[0] = sums[1] = 0;
  if (!(*scale > 0)) {
    std::memset(x, 0, kGroupValues);
    return;
  }
  for (int i = 0; i < kGroupValues; i += kLanes) {
    const Vec quotient = _mm256_div_ps(Load(in + i), Broadcast(*scale));
    alignas(32) int32_t rounded[kLanes];
    StoreInts(rounded, _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(quotient, Broadcast(-127)),
                                                        Broadcast(127))));
    for (int j = 0; j < kLanes; ++j) {
      x[i + j] = static_cast<int8_t>(rounded[j]);
      sums[i / (kGroupValues / 2)] += rounded[j];
    }
  }
}

}  // namespace
}  // namespace baton::cpu
