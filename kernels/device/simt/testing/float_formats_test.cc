#include "kernels/device/simt/float_formats.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace baton::simt {
namespace {

// Reference implementation of rounding to nearest even. Takes the two neighbours of x among the
// values of a format and returns the nearer one; if both are as near, the one with an even last
// bit. Infinity counts as the next power of two, `beyond`.
template <typename ToFloat>
uint16_t Nearest(double x, uint16_t infinity, double beyond, ToFloat to_float) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  x = std::fabs(x);
  uint16_t below = 0, above = infinity;  // bit patterns of positive floats are in order
  while (above - below > 1) {
    const uint16_t middle = (below + above) / 2;
    (to_float(middle) <= x ? below : above) = middle;
  }
  const double low = to_float(below), high = above == infinity ? beyond : to_float(above);
  const double to_low = x - low, to_high = high - x;
  return sign | (to_low < to_high || (to_low == to_high && below % 2 == 0) ? below : above);
}

TEST(FloatFormatsTest, EveryValueOfBothFormatsComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    if ((bits & 0x7fff) <= 0x7f80) {
      EXPECT_EQ(FloatToBf16(Bf16ToFloat(value)), value);
    } else {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(value)));
    }
    if ((bits & 0x7fff) <= 0x7c00) {
      EXPECT_EQ(FloatToHalf(HalfToFloat(value)), value);
    } else {
      EXPECT_TRUE(std::isnan(HalfToFloat(value)));
    }
  }
  EXPECT_EQ(HalfToFloat(0x3c01), 1 + 0x1p-10f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0xfbff), -65504.0f);
  EXPECT_EQ(Bf16ToFloat(0x3f81), 1 + 0x1p-7f);
}

TEST(FloatFormatsTest, RoundsToNearestEvenEverywhere) {
  // Tests floats around each value of the formats, floats around each midpoint of two values, and
  // many others.
  const auto check = [](float x) {
    ASSERT_EQ(FloatToBf16(x), Nearest(x, 0x7f80, 0x1p128, Bf16ToFloat)) << x;
    ASSERT_EQ(FloatToHalf(x), Nearest(x, 0x7c00, 0x1p16, HalfToFloat)) << x;
  };
  for (uint32_t high = 0; high < 0x7f80; high += 3) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      check(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (uint32_t half = 0; half < 0x7c00; half += 3) {
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    const float next = half == 0x7bff ? 0x1p16f : HalfToFloat(static_cast<uint16_t>(half + 1));
    const float middle = (value + next) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      check(x);
      check(-x);
    }
  }
}

TEST(FloatFormatsTest, AnyNanIsTheGpusOwn) {
  for (const float x : {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xffc00001),
                        std::bit_cast<float>(0x7f800001)}) {
    EXPECT_EQ(FloatToBf16(x), 0x7fff);
    EXPECT_EQ(FloatToHalf(x), 0x7fff);
  }
}

}  // namespace
}  // namespace baton::simt
