#pragma once

// Properties of one logit for a sample: its place in the order of preference, its weight and its
// bin. Included by kernels only.

#include "kernels/cuda/kernels/sample_kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

constexpr float kInfiniteLogit = __builtin_huge_valf();

// Returns a key that is larger for larger logits, and equal for 0 and -0.
BATON_DEVICE uint32_t OrderKey(float logit) {
  union {
    float value;
    uint32_t bits;
  };
  value = logit + 0.0f;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
BATON_DEVICE float LogitOfKey(uint32_t key) {
  union {
    uint32_t bits;
    float value;
  };
  bits = key >> 31 != 0 ? key & 0x7fffffffu : ~key;
  return value;
}

// Returns e^x as an integer: the weight of a token whose log-probability is x relative to the best
// token's. Does the same operations as TokenWeight in logit_blocks.h, so the result has the same
// bits.
BATON_DEVICE uint64_t WeightOf(double x) {
  if (!(x > -32)) return 0;
  const double rounded = Add(Mul(x, 1.4426950408889634), 0x1.8p52);
  const double k = Add(rounded, -0x1.8p52);
  const double r =
      Add(Add(x, -Mul(k, 6.93147180369123816490e-01)), -Mul(k, 1.90821492927058770002e-10));
  double p = 1.0 / 479001600;
  p = Add(Mul(p, r), 1.0 / 39916800);
  p = Add(Mul(p, r), 1.0 / 3628800);
  p = Add(Mul(p, r), 1.0 / 362880);
  p = Add(Mul(p, r), 1.0 / 40320);
  p = Add(Mul(p, r), 1.0 / 5040);
  p = Add(Mul(p, r), 1.0 / 720);
  p = Add(Mul(p, r), 1.0 / 120);
  p = Add(Mul(p, r), 1.0 / 24);
  p = Add(Mul(p, r), 1.0 / 6);
  p = Add(Mul(p, r), 0.5);
  p = Add(Mul(p, r), 1.0);
  p = Add(Mul(p, r), 1.0);
  union {
    double value;
    uint64_t bits;
  };
  value = rounded;
  bits = (bits + 1023 + kSampleWeightBits) << 52;
  value = Add(Mul(p, value), 0x1p52);
  return bits & ((uint64_t{1} << 52) - 1);
}

// Turns the logits of one row into weights and histogram bins, at the row's temperature.
struct Tempered {
  double largest, scale;

  // Logarithm of a token's probability relative to the best token's: 0 or less.
  BATON_DEVICE double Exponent(float logit) const {
    return Mul(Add(static_cast<double>(logit), -largest), scale);
  }
  BATON_DEVICE uint64_t Weight(float logit) const { return WeightOf(Exponent(logit)); }
  // Returns the histogram bin of a logit. A smaller logit never has a smaller bin. Every logit with
  // a weight above 0 has a bin below kSampleBins, because its Exponent() is above -27.73.
  BATON_DEVICE int Bin(float logit) const {
    const double bin = Mul(Exponent(logit), -(kSampleBins / 27.75));
    return bin < kSampleBins ? static_cast<int>(bin) : kSampleBins;
  }
};

// Returns true if sample_token needs the row's histogram. A row without top_k and top_p needs only
// the sums of weights of its chunks.
BATON_DEVICE bool HasHistogram(const SampleRow& ask) { return ask.top_k > 0 || ask.top_p < 1; }

// The place where top_k or top_p cuts a row. A token's key (OrderKey) is larger for a larger logit.
// The tokens that may be sampled are those with a key above `key`, and those with this key and an
// id up to `last`.
struct Cut {
  uint32_t key;
  int last;

  BATON_DEVICE bool Keeps(uint32_t of, int token) const {
    return of > key || (of == key && token <= last);
  }
};

// Integers of up to kSampleWeightBits + 1 bits are split into digits, which are summed in 32-bit
// words. A word can hold the sum of one digit over a whole vocabulary.
constexpr int kDigits = 3, kDigitBits = 13;
static_assert(kDigits * kDigitBits >= kSampleWeightBits);
static_assert(uint64_t{kMaxSampleVocab} << kDigitBits < uint64_t{1} << 32);
BATON_DEVICE void AddDigits(uint32_t* digits, int stride, uint64_t weight) {
  BATON_UNROLL
  for (int d = 0; d < kDigits - 1; ++d) {
    AtomicAdd(&digits[d * stride],
              static_cast<uint32_t>(weight >> d * kDigitBits) & ((1u << kDigitBits) - 1));
  }
  AtomicAdd(&digits[(kDigits - 1) * stride],
            static_cast<uint32_t>(weight >> (kDigits - 1) * kDigitBits));
}
BATON_DEVICE uint64_t SumOfDigits(const uint32_t* digits, int stride) {
  uint64_t sum = 0;
  BATON_UNROLL
  for (int d = 0; d < kDigits; ++d) {
    sum += static_cast<uint64_t>(digits[d * stride]) << d * kDigitBits;
  }
  return sum;
}

// Returns the largest logit of a row from the maxima of its chunks, or +infinity if some logits are
// NaN or +infinity. All lanes of a warp call this together.
BATON_DEVICE float RowLargest(const float* chunk_maxima, int chunks) {
  float largest = -kInfiniteLogit;
  for (int chunk = Lane(); chunk < chunks; chunk += 32) {
    const float other = chunk_maxima[chunk];
    largest = other > largest ? other : largest;
  }
  return WarpMax(largest);
}

}  // namespace baton::BATON_DEVICE_NAMESPACE
