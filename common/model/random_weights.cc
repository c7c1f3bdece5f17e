#include "common/model/random_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/base/hash.h"

namespace baton {
namespace {

constexpr int kLanes = 4;  // elements per random number

// Returns number `counter` of the SplitMix64 sequence that starts at `key` (Steele, Lea and Flood
// 2014).
uint64_t Sample(uint64_t key, uint64_t counter) {
  uint64_t x = key + (counter + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// A tensor's values are middle + step * k, for odd k from -65535 to 65535.
struct Scale {
  float middle, step;
};

Scale ScaleOf(const TensorShape& tensor) {
  switch (tensor.kind) {
    case TensorShape::Kind::kNorm:
      return {1, 0x1p-18f};  // values from 0.75 to 1.25
    case TensorShape::Kind::kBias:
      return {0, 0x1p-19f};  // values from -0.125 to 0.125
    case TensorShape::Kind::kMatrix:
      break;
  }
  // Makes the variance of the values 1 / cols.
  return {0, std::sqrt(3.0f / static_cast<float>(tensor.cols)) / 65536};
}

// Rounds to nearest even. The value must be finite and far below the largest float.
uint16_t Bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

void RandomWeights::Fill(const TensorShape& tensor, int64_t first, absl::Span<uint16_t> out) const {
  const uint64_t key = Hash64(tensor.name, seed_);
  const Scale scale = ScaleOf(tensor);
  constexpr int64_t kSamples = 256;
  uint64_t samples[kSamples];
  int16_t lanes[kSamples * kLanes];
  for (size_t done = 0; done < out.size();) {
    const int64_t at = first + static_cast<int64_t>(done), skipped = at % kLanes;
    for (int64_t i = 0; i < kSamples; ++i) samples[i] = Sample(key, at / kLanes + i);
    static_assert(std::endian::native == std::endian::little && sizeof(lanes) == sizeof(samples));
    std::memcpy(lanes, samples, sizeof(lanes));
    const size_t count = std::min<size_t>(kSamples * kLanes - skipped, out.size() - done);
    for (size_t i = 0; i < count; ++i) {
      const int odd = 2 * lanes[skipped + i] + 1;
      out[done + i] = Bf16(scale.middle + scale.step * static_cast<float>(odd));
    }
    done += count;
  }
}

}  // namespace baton
