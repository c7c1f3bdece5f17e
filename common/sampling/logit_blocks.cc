#include "common/sampling/logit_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// This file uses the vector types of GCC and Clang. The same source serves every instruction set,
// because the compiler chooses the registers. Vectors are passed to functions by pointer, because
// passing them by value without AVX would change the ABI.
namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 8;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Longs = uint64_t __attribute__((vector_size(kLanes * sizeof(uint64_t))));

// Constants to compute e^x. If x = k ln 2 + r for an integer k, with |r| <= ln 2 / 2, then e^x is
// 2^k times e^r, and a polynomial in r gives e^r.
constexpr double kLowest = -32;  // down to this x, a weight is 0
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
// Adding this number rounds a double to an integer, held in the lowest bits.
constexpr double kRound = 0x1.8p52;
constexpr double kInteger = 0x1p52;  // does the same for a double that is not negative
constexpr uint64_t kExponent = 1023 + kWeightBits;
constexpr std::array<double, 13> kTerms = {1.0 / 479001600,
                                           1.0 / 39916800,
                                           1.0 / 3628800,
                                           1.0 / 362880,
                                           1.0 / 40320,
                                           1.0 / 5040,
                                           1.0 / 720,
                                           1.0 / 120,
                                           1.0 / 24,
                                           1.0 / 6,
                                           0.5,
                                           1.0,
                                           1.0};

#define ALWAYS_INLINE inline __attribute__((always_inline))

// Loads a vector. If fewer than kLanes floats are left, fills the rest with -infinity.
ALWAYS_INLINE void Load(const float* from, size_t n, Floats* floats) {
  if (n < kLanes) {
    *floats = Floats{} - kInfinity;
    std::memcpy(floats, from, n * sizeof(float));
  } else {
    std::memcpy(floats, from, sizeof *floats);
  }
}

ALWAYS_INLINE void Weigh(const float* from, size_t n, double largest, double scale, Longs* out) {
  Floats logits;
  Load(from, n, &logits);
  const Doubles asked = (__builtin_convertvector(logits, Doubles) - largest) * scale;
  const Doubles x = asked > kLowest ? asked : Doubles{} + kLowest;
  const Doubles rounded = x * kLog2E + kRound;
  const Doubles k = rounded - kRound;
  const Doubles r = (x - k * kLn2High) - k * kLn2Low;
  Doubles p = Doubles{} + kTerms[0];
  for (size_t i = 1; i < kTerms.size(); ++i) p = p * r + kTerms[i];
  Longs power;
  std::memcpy(&power, &rounded, sizeof power);
  power = (power + kExponent) << 52;
  Doubles two_to_k;
  std::memcpy(&two_to_k, &power, sizeof two_to_k);
  const Doubles weight = p * two_to_k + kInteger;
  Longs bits;
  std::memcpy(&bits, &weight, sizeof bits);
  *out = bits & ((uint64_t{1} << 52) - 1);
}

ALWAYS_INLINE bool MaximaOf(const float* logits, size_t n, float* out) {
  Ints unsound = {};
  for (size_t block = 0; block < n; block += kLogitBlock) {
    const size_t end = std::min(n, block + kLogitBlock);
    Floats max = Floats{} - kInfinity;
    for (size_t i = block; i < end; i += kLanes) {
      Floats x;
      Load(logits + i, end - i, &x);
      unsound |= ~(x < kInfinity);
      max = x > max ? x : max;
    }
    float largest = max[0];
    for (size_t lane = 1; lane < kLanes; ++lane) largest = std::max(largest, max[lane]);
    *out++ = largest;
  }
  bool sound = true;
  for (size_t lane = 0; lane < kLanes; ++lane) sound &= unsound[lane] == 0;
  return sound;
}

ALWAYS_INLINE void SumsOf(const float* logits, size_t n, float largest, double scale,
                          uint64_t* out) {
  for (size_t block = 0; block < n; block += kLogitBlock) {
    const size_t end = std::min(n, block + kLogitBlock);
    Longs sum = {};
    for (size_t i = block; i < end; i += kLanes) {
      Longs weights;
      Weigh(logits + i, end - i, largest, scale, &weights);
      sum += weights;
    }
    uint64_t all = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) all += sum[lane];
    *out++ = all;
  }
}

ALWAYS_INLINE void WeightsOf(const float* logits, size_t n, float largest, double scale,
                             uint64_t* out) {
  for (size_t i = 0; i < n; i += kLanes) {
    Longs weights;
    Weigh(logits + i, n - i, largest, scale, &weights);
    std::memcpy(out + i, &weights, std::min(n - i, kLanes) * sizeof(uint64_t));
  }
}

#define KERNELS(NAME, TARGET)                                                           \
  TARGET bool Maxima##NAME(const float* logits, size_t n, float* out) {                 \
    return MaximaOf(logits, n, out);                                                    \
  }                                                                                     \
  TARGET void Sums##NAME(const float* logits, size_t n, float largest, double scale,    \
                         uint64_t* out) {                                               \
    SumsOf(logits, n, largest, scale, out);                                             \
  }                                                                                     \
  TARGET void Weights##NAME(const float* logits, size_t n, float largest, double scale, \
                            uint64_t* out) {                                            \
    WeightsOf(logits, n, largest, scale, out);                                          \
  }

KERNELS(Portable, )
#ifdef __x86_64__
KERNELS(Avx2, __attribute__((target("avx2"))))
KERNELS(Avx512, __attribute__((target("avx512f,avx512dq,avx512vl"))))
#endif

struct Found {
  std::array<LogitKernels, 3> kernels;  // slowest first
  size_t count = 0;
  void Add(const LogitKernels& one) { kernels[count++] = one; }
};

const Found& KernelsHere() {
  static const Found* const found = [] {
    auto* all = new Found;
    all->Add({"portable", MaximaPortable, SumsPortable, WeightsPortable});
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) all->Add({"avx2", MaximaAvx2, SumsAvx2, WeightsAvx2});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      all->Add({"avx512", MaximaAvx512, SumsAvx512, WeightsAvx512});
    }
#endif
    return all;
  }();
  return *found;
}

}  // namespace

uint64_t TokenWeight(double x) {
  if (!(x > kLowest)) return 0;
  const double rounded = x * kLog2E + kRound;
  const double k = rounded - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double p = kTerms[0];
  for (size_t i = 1; i < kTerms.size(); ++i) p = p * r + kTerms[i];
  const double two_to_k =
      std::bit_cast<double>((std::bit_cast<uint64_t>(rounded) + kExponent) << 52);
  return std::bit_cast<uint64_t>(p * two_to_k + kInteger) & ((uint64_t{1} << 52) - 1);
}

const LogitKernels& BestLogitKernels() {
  const Found& found = KernelsHere();
  return found.kernels[found.count - 1];
}

const LogitKernels* AllLogitKernels(size_t* count) {
  *count = KernelsHere().count;
  return KernelsHere().kernels.data();
}

}  // namespace baton
