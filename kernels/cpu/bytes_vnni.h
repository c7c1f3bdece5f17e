#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/cpu/quantised_kernels.h"
#include "kernels/cpu/vec_avx512.h"

// Sixteen lanes of four bytes as one AVX-512 register, for weights of sixteen rows. Defines the
// names of bytes_avx2.h, and Add for integers. Only kernels_vnni.cc and the files of kernels with
// tiles include this file; everything here has internal linkage.
namespace baton::cpu {
namespace {

using Ints = __m512i;

constexpr int kPanel = 16;     // weight rows in one register
constexpr int kFusedRows = 2;  // max activation rows multiplied with weights still in registers
// Weights of signed bytes are stored with this number added, because one factor of the instruction
// is unsigned.
constexpr int kSignedBias = 128;

inline Ints Repeat(int x) { return _mm512_set1_epi32(x); }
inline Ints LoadInts(const void* p) { return _mm512_load_si512(p); }
inline void StoreInts(void* p, Ints x) { _mm512_store_si512(p, x); }
inline Ints And(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints Or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints Add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints Right(Ints x, int bits) { return _mm512_srli_epi32(x, bits); }
inline Ints Left(Ints x, int bits) { return _mm512_slli_epi32(x, bits); }
inline Ints RightSigned(Ints x, int bits) { return _mm512_srai_epi32(x, bits); }
inline Vec ToFloats(Ints x) { return _mm512_cvtepi32_ps(x); }
inline Ints Biased(Ints signed_bytes) {
  return _mm512_xor_si512(signed_bytes, _mm512_set1_epi8(-128));
}

// Adds 16 to each byte of `x` whose byte of `bits` has one of the bits of the byte in `which`.
inline Ints AddHighBits(Ints x, Ints bits, Ints which) {
  return _mm512_mask_add_epi8(x, _mm512_test_epi8_mask(bits, which), x, _mm512_set1_epi8(16));
}
// Repeats byte `kByte` of each lane in all four bytes of the lane.
template <int kByte>
inline Ints RepeatByte(Ints x) {
  const int from = kByte * 0x01010101;
  return _mm512_shuffle_epi8(
      x, _mm512_broadcast_i32x4(
             _mm_set_epi32(from + 0x0c0c0c0c, from + 0x08080808, from + 0x04040404, from)));
}

// Adds the four products of bytes in each lane. Those of `w` are unsigned, those of `x` signed.
template <bool kSigned>
inline Ints DotBytes(Ints sum, Ints w, Ints x) {
  return _mm512_dpbusd_epi32(sum, w, x);
}

[[gnu::always_inline]] inline __m128i Load16(const char* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// Reads 16 bytes of each row, `offset` bytes behind its begin. Lane r of out[i] is the i-th four
// bytes of row r.
[[gnu::always_inline]] inline void LoadRows(const RowsOfPanel& rows, ptrdiff_t offset,
                                            Ints out[4]) {
  Ints in[4];  // Four rows in each: i, i + 4, i + 8 and i + 12.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    // On Zen 4, this takes fewer steps than inserting three rows into 64 bytes.
    const __m256i lower =
        _mm256_set_m128i(Load16(rows.At(i + 4) + offset), Load16(rows.At(i) + offset));
    const __m256i upper =
        _mm256_set_m128i(Load16(rows.At(i + 12) + offset), Load16(rows.At(i + 8) + offset));
    in[i] = _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
  }
  const Ints a = _mm512_unpacklo_epi32(in[0], in[1]), b = _mm512_unpackhi_epi32(in[0], in[1]);
  const Ints c = _mm512_unpacklo_epi32(in[2], in[3]), d = _mm512_unpackhi_epi32(in[2], in[3]);
  out[0] = _mm512_unpacklo_epi64(a, c);
  out[1] = _mm512_unpackhi_epi64(a, c);
  out[2] = _mm512_unpacklo_epi64(b, d);
  out[3] = _mm512_unpackhi_epi64(b, d);
}

// Returns the upper half of each lane of `low` and, above it, the lower half of the same lane of
// `high`.
inline Ints MiddleHalves(Ints low, Ints high) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_rol_epi32(low, 16), _mm512_rol_epi32(high, 16));
}

// Returns the f16 in the lower or upper half of each lane.
inline Vec LowerHalves(Ints x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
inline Vec UpperHalves(Ints x) { return LowerHalves(Right(x, 16)); }

// Reads four bytes of each row.
[[gnu::always_inline]] inline Ints LoadFours(const RowsOfPanel& rows, ptrdiff_t offset) {
  const auto load = [&](int row) {
    int32_t four;
    std::memcpy(&four, rows.At(row) + offset, sizeof(four));
    return four;
  };
  const auto rows_from = [&](int r) {
    return _mm_set_epi32(load(r + 3), load(r + 2), load(r + 1), load(r));
  };
  Ints all = _mm512_castsi128_si512(rows_from(0));
  all = _mm512_inserti32x4(all, rows_from(4), 1);
  all = _mm512_inserti32x4(all, rows_from(8), 2);
  return _mm512_inserti32x4(all, rows_from(12), 3);
}

inline void StoreFirst(float* p, Vec x, int count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), x);
}
inline Vec LoadFirst(const float* p, int count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
}

// Rounds 32 activations (quantised_product.h).
inline void QuantiseGroup(const float* in, int8_t* x, float* scale, int32_t sums[2]) {
  const Vec a = Load(in), b = Load(in + 16);
  const Vec abs_a = _mm512_abs_ps(a), abs_b = _mm512_abs_ps(b);
  const Vec infinite = Broadcast(__builtin_inff());
  const __mmask16 finite = _mm512_cmp_ps_mask(abs_a, infinite, _CMP_LT_OQ) &
                           _mm512_cmp_ps_mask(abs_b, infinite, _CMP_LT_OQ);
  *scale = finite == 0xffff ? MaxLane(Max(abs_a, abs_b)) / 127 : __builtin_nanf("");
  sums[0] = sums[1] = 0;
  if (!(*scale > 0)) {
    std::memset(x, 0, kGroupValues);
    return;
  }
  const auto round = [&](Vec v, int8_t* to) {
    const Vec quotient = _mm512_div_ps(v, Broadcast(*scale));
    const Ints rounded =
        _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(quotient, Broadcast(-127)), Broadcast(127)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(rounded));
    return _mm512_reduce_add_epi32(rounded);
  };
  sums[0] = round(a, x);
  sums[1] = round(b, x + 16);
}

}  // namespace
}  // namespace baton::cpu
