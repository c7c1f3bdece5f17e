#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/isa_kernels.h"

// Sixteen float lanes as two AVX2 registers. Defines the same names as vec_portable.h; the
// functions give the same bits. Only kernels_avx2.cc includes this file. Everything here has
// internal linkage, so that no code compiled with AVX2 can replace a function of another file.
namespace baton::cpu {
namespace {

using Vec = __m256;

constexpr int kLanes = 8;        // lanes of one Vec
constexpr int kParts = 2;        // Vecs that make sixteen lanes
constexpr int kTileRows = 3;     // activation rows per register tile: 3 x 4 sums, 3 + 1 inputs
constexpr int kAttendRows = 6;   // rows of probabilities per register tile
constexpr int kAttendVecs = 12;  // Vecs of sums in an attention register tile
constexpr int kSmallRows = 3;    // max activation rows for gemm_small
// kDotCols[m - 1] is the number of weight rows computed together for m activation rows.
constexpr int kDotCols[kSmallRows] = {4, 2, 2};

inline Vec Zero() { return _mm256_setzero_ps(); }
inline Vec Broadcast(float x) { return _mm256_set1_ps(x); }
inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
// Returns a * b + c, rounded once.
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
// Returns the larger of a and b, and b if either is NaN.
inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
// Returns the largest lane. No lane may be NaN.
inline float MaxLane(Vec x) {
  float lanes[kLanes];
  Store(lanes, x);
  float max = lanes[0];
  for (int i = 1; i < kLanes; ++i) max = lanes[i] > max ? lanes[i] : max;
  return max;
}
inline Vec RoundToEven(Vec x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Returns 2^n for integral n in [-126, 127].
inline Vec PowerOfTwo(Vec n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
// Returns `then` in lanes where a < b, and `other` elsewhere. NaN is not less than anything.
inline Vec SelectLess(Vec a, Vec b, Vec then, Vec other) {
  return _mm256_blendv_ps(other, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

inline Vec LoadWide(const float* p) { return Load(p); }
inline Vec LoadWide(const F16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec LoadWide(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Stores the lanes of x as elements of the type of `p`, rounded to nearest even. Values that are
// too large for the type become infinite; NaN stays NaN.
inline void StoreNarrow(float* p, Vec x) { Store(p, x); }
inline void StoreNarrow(F16* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void StoreNarrow(Bf16* p, Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i wide = _mm256_blendv_epi8(rounded, quiet, is_nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}

// Sums the sixteen lanes of each of four arrays, and stores the four sums in `out`. The tree adds
// lanes 8 to 15 to lanes 0 to 7, then lanes 4 to 7 to lanes 0 to 3, then lanes 2 and 3 to lanes 0
// and 1, and last lane 1 to lane 0.
inline void ReduceFour(const float* a, const float* b, const float* c, const float* d, float* out) {
  const Vec a8 = Add(Load(a), Load(a + 8)), b8 = Add(Load(b), Load(b + 8));
  const Vec c8 = Add(Load(c), Load(c + 8)), d8 = Add(Load(d), Load(d + 8));
  const Vec ab4 = Add(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
  const Vec cd4 = Add(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
  // For each of the four arrays, adds the last two of its four lanes to the first two (a0 is lane 0
  // of array a):
  // [a0 a1 c0 c1 | b0 b1 d0 d1] + [a2 a3 c2 c3 | b2 b3 d2 d3]
  const Vec acbd = Add(_mm256_shuffle_ps(ab4, cd4, 0x44), _mm256_shuffle_ps(ab4, cd4, 0xee));
  const __m128 ac = _mm256_castps256_ps128(acbd), bd = _mm256_extractf128_ps(acbd, 1);
  // Adds the odd lane of each array to the even one. The result holds one sum for each array, in
  // the order a, c, b, d.
  const __m128 acbd1 = _mm_add_ps(_mm_shuffle_ps(ac, bd, 0x88), _mm_shuffle_ps(ac, bd, 0xdd));
  _mm_storeu_ps(out, _mm_shuffle_ps(acbd1, acbd1, 0xd8));
}

// Transposes and widens 32 elements of 2 * kLanes rows: out[j][c] = element k0 + j of row c.
inline void WidenTransposed(const Bf16* const* rows, ptrdiff_t k0, float* out) {
  for (int c = 0; c < 16; c += 8) {
    for (int j = 0; j < 32; j += 16) {
      __m256i r[8], t[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        r[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[c + i] + k0 + j));
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
      }
      // After this loop, register r[4 q + p] holds data of the rows 4 q to 4 q + 3: pair p of each
      // row in the lower 128 bits, and pair 4 + p in the upper 128 bits. A pair is two neighbouring
      // bf16 elements.
#pragma GCC unroll 8
      for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
      }
#pragma GCC unroll 8
      for (int p = 0; p < 8; ++p) {
        const __m256i pair = p < 4 ? _mm256_permute2x128_si256(r[p], r[4 + p], 0x20)
                                   : _mm256_permute2x128_si256(r[p - 4], r[p], 0x31);
        float* to = out + (j + 2 * p) * 16 + c;
        Store(to, _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)));
        Store(to + 16, _mm256_castsi256_ps(_mm256_and_si256(
                           pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))));
      }
    }
  }
}

// Transposes eight rows of eight floats in place.
inline void TransposeRows(float* rows) {
  __m256 pairs[8], quads[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    const __m256 even = Load(rows + i * 8), odd = Load(rows + i * 8 + 8);
    pairs[i] = _mm256_unpacklo_ps(even, odd);
    pairs[i + 1] = _mm256_unpackhi_ps(even, odd);
  }
  // After this loop, quads[4 h + c] has columns c and 4 + c of rows 4 h to 4 h + 3.
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    Store(rows + c * 8, _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x20));
    Store(rows + (4 + c) * 8, _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x31));
  }
}

}  // namespace
}  // namespace baton::cpu
