#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/isa_kernels.h"

// Sixteen float lanes as one AVX-512 register. Defines the same names as vec_portable.h; the
// functions give the same bits. Only kernels compiled for AVX-512 include this file. Everything
// here has internal linkage, so that no code compiled with AVX-512 can replace a function of
// another file.
namespace baton::cpu {
namespace {

using Vec = __m512;

constexpr int kLanes = 16;       // lanes of one Vec
constexpr int kParts = 1;        // Vecs that make sixteen lanes
constexpr int kTileRows = 6;     // activation rows per register tile: 6 x 4 sums, 6 + 1 inputs
constexpr int kAttendRows = 6;   // rows of probabilities per register tile
constexpr int kAttendVecs = 24;  // Vecs of sums in an attention register tile
constexpr int kSmallRows = 8;    // max activation rows for gemm_small
// kDotCols[m - 1] is the number of weight rows computed together for m activation rows.
constexpr int kDotCols[kSmallRows] = {8, 4, 4, 4, 4, 4, 3, 3};

inline Vec Zero() { return _mm512_setzero_ps(); }
inline Vec Broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// Returns a * b + c, rounded once.
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// Returns the larger of a and b, and b if either is NaN.
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
// Returns the largest lane. No lane may be NaN.
inline float MaxLane(Vec x) { return _mm512_reduce_max_ps(x); }
inline Vec RoundToEven(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Returns 2^n for integral n in [-126, 127].
inline Vec PowerOfTwo(Vec n) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
// Returns `then` in lanes where a < b, and `other` elsewhere. NaN is not less than anything.
inline Vec SelectLess(Vec a, Vec b, Vec then, Vec other) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), other, then);
}

inline Vec LoadWide(const float* p) { return Load(p); }
inline Vec LoadWide(const F16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec LoadWide(const Bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Stores the lanes of x as elements of the type of `p`, rounded to nearest even. Values that are
// too large for the type become infinite; NaN stays NaN.
inline void StoreNarrow(float* p, Vec x) { Store(p, x); }
inline void StoreNarrow(F16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void StoreNarrow(Bf16* p, Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet)));
}

// Adds lanes 8 to 15 to lanes 0 to 7. This is the first step of the sums in ReduceFour.
inline __m256 FoldHalves(const float* p) {
  const Vec x = Load(p);
  return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

// Sums the sixteen lanes of each of four arrays, and stores the four sums in `out`. The tree adds
// lanes 8 to 15 to lanes 0 to 7, then lanes 4 to 7 to lanes 0 to 3, then lanes 2 and 3 to lanes 0
// and 1, and last lane 1 to lane 0.
inline void ReduceFour(const float* a, const float* b, const float* c, const float* d, float* out) {
  const __m256 a8 = FoldHalves(a), b8 = FoldHalves(b), c8 = FoldHalves(c), d8 = FoldHalves(d);
  const __m256 ab4 =
      _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
  const __m256 cd4 =
      _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
  // For each of the four arrays, adds the last two of its four lanes to the first two (a0 is lane 0
  // of array a):
  // [a0 a1 c0 c1 | b0 b1 d0 d1] + [a2 a3 c2 c3 | b2 b3 d2 d3]
  const __m256 acbd =
      _mm256_add_ps(_mm256_shuffle_ps(ab4, cd4, 0x44), _mm256_shuffle_ps(ab4, cd4, 0xee));
  const __m128 ac = _mm256_castps256_ps128(acbd), bd = _mm256_extractf128_ps(acbd, 1);
  // Adds the odd lane of each array to the even one. The result holds one sum for each array, in
  // the order a, c, b, d.
  const __m128 acbd1 = _mm_add_ps(_mm_shuffle_ps(ac, bd, 0x88), _mm_shuffle_ps(ac, bd, 0xdd));
  _mm_storeu_ps(out, _mm_shuffle_ps(acbd1, acbd1, 0xd8));
}

// Transposes a matrix of 16 x 16 values of 32 bits, with one register for each row.
inline void Transpose16(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  // After this loop, the 128-bit quarter q of register r[4 j + c] holds column 4 q + c of the rows
  // 4 j to 4 j + 3.
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                  odd_low = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd),
                  even_high = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                  odd_high = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// Transposes sixteen rows of sixteen floats in place.
inline void TransposeRows(float* rows) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * 16);
  Transpose16(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(rows + i * 16, r[i]);
}

// Transposes and widens 32 elements of 2 * kLanes rows: out[j][c] = element k0 + j of row c.
inline void WidenTransposed(const Bf16* const* rows, ptrdiff_t k0, float* out) {
  for (int c = 0; c < 32; c += 16) {
    __m512i pairs[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) pairs[i] = _mm512_loadu_si512(rows[c + i] + k0);
    Transpose16(pairs);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      float* to = out + i * 64 + c;
      Store(to, _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16)));
      Store(to + 32, _mm512_castsi512_ps(_mm512_and_si512(
                         pairs[i], _mm512_set1_epi32(static_cast<int>(0xffff0000u)))));
    }
  }
}

}  // namespace
}  // namespace baton::cpu
