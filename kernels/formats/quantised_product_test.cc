#include "kernels/formats/quantised_product.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<ActivationGroup> Quantise(const std::vector<float>& values) {
  std::vector<ActivationGroup> groups((values.size() + 31) / 32);
  QuantiseActivations(values, absl::MakeSpan(groups));
  return groups;
}

TEST(QuantiseActivationsTest, RoundsToTheNearestAndTiesToEven) {
  std::vector<float> values(40, 0.0f);
  values[0] = -127;  // so the scale is 1
  values[1] = 0.5;
  values[2] = 1.5;
  values[3] = -2.5;
  values[4] = 2.51f;
  values[32] = 63.5;  // the second group has a scale of 0.5, and is filled up
  values[39] = -1;
  const auto groups = Quantise(values);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].scale, 1);
  EXPECT_EQ(groups[0].quant[0], -127);
  EXPECT_EQ(groups[0].quant[1], 0);
  EXPECT_EQ(groups[0].quant[2], 2);
  EXPECT_EQ(groups[0].quant[3], -2);
  EXPECT_EQ(groups[0].quant[4], 3);
  EXPECT_EQ(groups[0].sum, -127 + 2 - 2 + 3);
  EXPECT_EQ(groups[1].scale, 0.5);
  EXPECT_EQ(groups[1].quant[0], 127);
  EXPECT_EQ(groups[1].quant[7], -2);
  EXPECT_EQ(groups[1].quant[31], 0);
}

TEST(QuantiseActivationsTest, SmallLargeAndNoNumbers) {
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Quantise(std::vector<float>(32, 0.0f))[0].scale, 0);
  EXPECT_EQ(Quantise(std::vector<float>(32, 60 * kSmallest))[0].scale, 0);
  // The scale is rounded down to the least float, of which the largest value is 190 times as much.
  EXPECT_EQ(Quantise(std::vector<float>(32, 190 * kSmallest))[0].quant[5], 127);
  EXPECT_EQ(Quantise({std::numeric_limits<float>::max()})[0].quant[0], 127);
  for (const float odd : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(64, 1.0f);
    values[40] = odd;
    const auto groups = Quantise(values);
    EXPECT_EQ(groups[0].quant[0], 127);
    EXPECT_TRUE(std::isnan(groups[1].scale));
    std::vector<WeightGroup> weights(2, {.scale = 1});
    EXPECT_TRUE(std::isnan(QuantisedProduct(weights, groups)));
  }
}

TEST(QuantisedProductTest, IsTheSumOfTheProductsOfTheRoundedValues) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> quant(-32, 32), factor(-128, 127), offset(0, 63);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 200; ++round) {
    std::vector<WeightGroup> weights(1 + round % 9);
    std::vector<float> values(32 * weights.size());
    for (float& value : values) value = normal(random);
    for (WeightGroup& group : weights) {
      group.scale = normal(random);
      group.has_offset = round % 2 == 0;
      group.offset_scale = normal(random);
      group.offset_factor = offset(random);
      for (int& one : group.factor) one = factor(random);
      for (int8_t& one : group.quant) one = static_cast<int8_t>(quant(random));
    }
    const auto groups = Quantise(values);
    double expected = 0, terms = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const WeightGroup& w = weights[i / 32];
      const double x = double{groups[i / 32].scale} * groups[i / 32].quant[i % 32];
      EXPECT_NEAR(x, values[i], groups[i / 32].scale * 0.5001);
      double value = double{w.scale} * w.factor[i % 32 / 16] * w.quant[i % 32];
      if (w.has_offset) value += double{w.offset_scale} * w.offset_factor;
      expected += value * x;
      terms += std::fabs(double{w.scale} * w.factor[i % 32 / 16] * w.quant[i % 32] * x) +
               std::fabs(double{w.offset_scale} * w.offset_factor * x);
    }
    EXPECT_NEAR(QuantisedProduct(weights, groups), expected, 4e-7 * terms);
  }
}

// The largest integers that a format has are exact as floats, whichever way they are summed.
TEST(QuantisedProductTest, TheLargestIntegersAreExact) {
  WeightGroup weights = {.scale = 1, .factor = {-128, -128}};
  ActivationGroup x = {.scale = 1};
  for (int i = 0; i < 32; ++i) {
    weights.quant[i] = -32;
    x.quant[i] = i == 0 ? 126 : 127;
  }
  const int product = 128 * 32 * (31 * 127 + 126);
  ASSERT_LT(product, 1 << 24);
  EXPECT_EQ(QuantisedProduct({&weights, 1}, {&x, 1}), static_cast<float>(product));
}

}  // namespace
}  // namespace baton
