#pragma once

#include <bit>
#include <cstdint>

namespace baton::simt {

// Conversions of 16-bit floats, as the GPU's `cvt.rn` does them: round to nearest even; any NaN
// becomes 0x7fff.

constexpr float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

constexpr uint16_t FloatToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr float HalfToFloat(uint16_t bits) {
  const uint32_t magnitude = uint32_t{bits} & 0x7fff;
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | magnitude << 13);
  // The shifted bits still have the exponent bias of f16. Read as a float, they give a value that
  // is too small by a factor of 2^112. The multiplication is exact, also for values that are
  // denormal in f16.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

constexpr uint16_t FloatToHalf(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 2^16 and more
  if (magnitude < 0x38800000) {                       // below 2^-14: denormal in half
    // Floats near 0.5 have the same spacing as the denormals of f16, so this sum rounds correctly.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(sum) - 0x3f000000);
  }
  // If rounding goes beyond the largest f16, the carry into the exponent gives infinity.
  return sign |
         static_cast<uint16_t>((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

}  // namespace baton::simt
