#pragma once

// Reference implementations of the summation orders of tdpbf16ps and vdpbf16ps, as the processors'
// manuals describe these instructions. They compute one output at a time. Only kernels_portable.cc
// includes this file, after vec_portable.h.
namespace baton::cpu {
namespace {

constexpr float kSmallestNormal = 0x1p-126f;

// Replaces a denormal by a zero of the same sign.
inline float FlushInput(float x) {
  return __builtin_fabsf(x) < kSmallestNormal ? __builtin_copysignf(0.0f, x) : x;
}
// Rounds `exact` to float; a result that is denormal even after rounding to 24 bits becomes zero.
// `exact` is a float plus a product of two bf16, computed in double. Rounding it once more gives
// the correctly rounded sum: both terms have at most 24 bits, and 53 >= 2 * 24 + 2 (Figueroa 1995).
inline float FlushRounded(double exact) {
  if (!(__builtin_fabs(exact) < static_cast<double>(kSmallestNormal))) {
    return static_cast<float>(exact);
  }
  const float scaled = static_cast<float>(exact * 0x1p64);
  return __builtin_fabsf(scaled) < 0x1p-62f ? __builtin_copysignf(0.0f, scaled)
                                            : __builtin_copysignf(kSmallestNormal, scaled);
}
inline float FusedFlush(float a, float b, float c) {
  return FlushRounded(static_cast<double>(FlushInput(a)) * static_cast<double>(FlushInput(b)) +
                      static_cast<double>(FlushInput(c)));
}
inline float AddFlush(float a, float b) {
  return FlushRounded(static_cast<double>(FlushInput(a)) + static_cast<double>(FlushInput(b)));
}

// Returns element i of the row as a float, or 0 from element k on. The address of the row may be
// odd.
inline float BeyondIsZero(const Bf16* row, ptrdiff_t i, ptrdiff_t k) {
  if (i >= k) return 0;
  Bf16 value;
  __builtin_memcpy(&value, reinterpret_cast<const char*>(row) + i * sizeof(Bf16), sizeof(Bf16));
  return Wide(value);
}

// Dot product with the summation order of tdpbf16ps. Of every 32 elements of k, those with even
// index form one chain of fused multiply-adds and those with odd index another, both starting from
// zero. The sum of the two chains is added to the total.
inline float AmxOrderDot(const Bf16* x, const Bf16* w, ptrdiff_t k) {
  float total = 0;
  for (ptrdiff_t i = 0; i < k; i += 32) {
    float even = 0, odd = 0;
    for (ptrdiff_t j = i; j < i + 32; j += 2) {
      even = FusedFlush(BeyondIsZero(x, j, k), BeyondIsZero(w, j, k), even);
      odd = FusedFlush(BeyondIsZero(x, j + 1, k), BeyondIsZero(w, j + 1, k), odd);
    }
    total = AddFlush(total, AddFlush(even, odd));
  }
  return total;
}

// Dot product with the summation order of vdpbf16ps. Sixteen lanes, numbered l = 0 to 15, each have
// a running sum. For every 32 elements, lane l adds first x[2l + 1] * w[2l + 1] and then x[2l] *
// w[2l]. The lanes are summed by the same tree as in every other dot product (ReduceFour).
inline float PairDot(const Bf16* x, const Bf16* w, ptrdiff_t k) {
  float lanes[16] = {};
  for (ptrdiff_t i = 0; i < k; i += 32) {
    for (int l = 0; l < 16; ++l) {
      const ptrdiff_t j = i + 2 * l;
      lanes[l] = FusedFlush(BeyondIsZero(x, j + 1, k), BeyondIsZero(w, j + 1, k), lanes[l]);
      lanes[l] = FusedFlush(BeyondIsZero(x, j, k), BeyondIsZero(w, j, k), lanes[l]);
    }
  }
  return ReduceOne(lanes);
}

void PlainPack(const float* x, ptrdiff_t x_stride, int m, ptrdiff_t k, int m0, char* packed) {
  Bf16* to = reinterpret_cast<Bf16*>(packed);
  for (ptrdiff_t row = m0; row < m && row < m0 + 16; ++row) {
    for (ptrdiff_t i = 0; i < k; ++i)
      to[row * k + i] = NarrowBf16(FlushInput(x[row * x_stride + i]));
  }
}
size_t PlainPackedBytes(int m, ptrdiff_t k) { return m * k * sizeof(Bf16); }
size_t NoScratch(int, ptrdiff_t) { return 0; }

template <float (*kDot)(const Bf16*, const Bf16*, ptrdiff_t)>
void PlainBf16Gemm(const Bf16Task& task, int m0, int m1, int n0, int n1, char*) {
  for (int n = n0; n < n1; ++n) {
    for (ptrdiff_t m = m0; m < m1; ++m) {
      const Bf16* x = reinterpret_cast<const Bf16*>(task.x) + m * task.k;
      float value = kDot(x, task.w + n * task.k, task.k);
      if (task.bias != nullptr) value += task.bias[n];
      float& out = task.out[m * task.out_stride + n];
      out = task.accumulate ? out + value : value;
    }
  }
}

constexpr Bf16Kernels MakePlain(void (*gemm)(const Bf16Task&, int, int, int, int, char*)) {
  return {.name = "portable",
          .panel_cols = 1,
          .group_cols = 16,
          .block_rows = 96,
          .pack = PlainPack,
          .packed_bytes = PlainPackedBytes,
          .gemm = gemm,
          .scratch_bytes = NoScratch};
}

}  // namespace
}  // namespace baton::cpu
