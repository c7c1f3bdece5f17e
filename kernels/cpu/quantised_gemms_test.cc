#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/formats/quantised_product.h"

// GEMMs with quantised weights, through the backend and its threads.
namespace baton {
namespace {

constexpr int kOutputs = 77, kInputs = 512;

class QuantisedGemmsTest : public testing::TestWithParam<WeightFormat> {
 protected:
  static std::vector<std::byte> RandomRows(WeightFormat format, int rows) {
    std::mt19937 random(5);
    std::vector<std::byte> bytes(rows * RowBytes(format, kInputs));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // All scales are finite: no f16 begins with five ones.
    for (std::byte& byte : bytes) byte &= std::byte{0xbf};
    return bytes;
  }
  static std::vector<float> RandomFloats(int count, int seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }

  // Returns in * weight^T + bias, added to ones if `accumulate`.
  static std::vector<float> Gemm(CpuNumerics numerics, int threads, const Matrix& weight, int rows,
                                 bool accumulate) {
    const auto backend =
        CreateCpuBackend({threads, CpuBackendOptions::Isa::kPortable, numerics}).value();
    const Tensor in = backend->Allocate(rows, kInputs).value();
    const Tensor out = backend->Allocate(rows, kOutputs).value();
    const std::vector<float> x = RandomFloats(rows * kInputs, 1), b = RandomFloats(kOutputs, 2);
    for (int row = 0; row < rows; ++row) {
      std::memcpy(static_cast<float*>(in.data) + row * in.stride, &x[row * kInputs],
                  kInputs * sizeof(float));
      std::fill_n(static_cast<float*>(out.data) + row * out.stride, kOutputs, 1.0f);
    }
    const Matrix bias = {b.data(), WeightFormat::kF32, 1, kOutputs};
    const Matrix loaded = backend->LoadWeight(weight).value();
    EXPECT_TRUE(backend->Gemm({in, loaded, bias, accumulate, out}).ok());
    std::vector<float> result;
    for (int row = 0; row < rows; ++row) {
      const float* const from = static_cast<float*>(out.data) + row * out.stride;
      result.insert(result.end(), from, from + kOutputs);
    }
    return result;
  }

  const std::vector<std::byte> bytes_ = RandomRows(GetParam(), kOutputs);
  const Matrix weight_ = {bytes_.data(), GetParam(), kOutputs, kInputs};
};

TEST_P(QuantisedGemmsTest, WithFloatActivationsTheBitsAreThoseOfTheSameWeightsAsFloats) {
  std::vector<float> wide(kOutputs * kInputs);
  for (int row = 0; row < kOutputs; ++row) {
    Dequantise(GetParam(), &bytes_[row * RowBytes(GetParam(), kInputs)],
               absl::MakeSpan(wide).subspan(row * kInputs, kInputs));
  }
  const Matrix floats = {wide.data(), WeightFormat::kF32, kOutputs, kInputs};
  for (const int rows : {1, 3, 9, 100}) {
    for (const bool accumulate : {false, true}) {
      EXPECT_EQ(Gemm(CpuNumerics::kF32, 2, weight_, rows, accumulate),
                Gemm(CpuNumerics::kF32, 2, floats, rows, accumulate))
          << rows << " rows";
    }
  }
}

TEST_P(QuantisedGemmsTest, WithRoundedActivationsTheyAreTheProductsOfTheDefinition) {
  for (const int rows : {1, 5, 100}) {
    const std::vector<float> x = RandomFloats(rows * kInputs, 1), b = RandomFloats(kOutputs, 2);
    const std::vector<float> sum = Gemm(CpuNumerics::kQ8, 3, weight_, rows, false);
    const std::vector<float> added = Gemm(CpuNumerics::kQ8, 1, weight_, rows, true);
    std::vector<WeightGroup> groups(kInputs / WeightGroup::kValues);
    std::vector<ActivationGroup> rounded(groups.size());
    for (int row = 0; row < rows; ++row) {
      QuantiseActivations(absl::MakeConstSpan(x).subspan(row * kInputs, kInputs),
                          absl::MakeSpan(rounded));
      for (int out = 0; out < kOutputs; ++out) {
        UnpackGroups(GetParam(), &bytes_[out * RowBytes(GetParam(), kInputs)],
                     absl::MakeSpan(groups));
        const float value = QuantisedProduct(groups, rounded) + b[out];
        ASSERT_EQ(sum[row * kOutputs + out], value);
        ASSERT_EQ(added[row * kOutputs + out], 1 + value);
      }
    }
  }
}

TEST_P(QuantisedGemmsTest, RowsOfAnEmbeddingAreExact) {
  const auto backend = CreateCpuBackend({1, CpuBackendOptions::Isa::kPortable}).value();
  const Tensor out = backend->Allocate(2, kInputs).value();
  const std::vector<TokenId> tokens = {76, 3};
  ASSERT_TRUE(backend->Embed({weight_, tokens, out}).ok());
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<float> expected(kInputs);
    Dequantise(GetParam(), &bytes_[tokens[i] * RowBytes(GetParam(), kInputs)],
               absl::MakeSpan(expected));
    EXPECT_EQ(std::memcmp(static_cast<float*>(out.data) + i * out.stride, expected.data(),
                          kInputs * sizeof(float)),
              0);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantisedGemmsTest,
                         testing::Values(WeightFormat::kQ4_0, WeightFormat::kQ4_1,
                                         WeightFormat::kQ5_0, WeightFormat::kQ5_1,
                                         WeightFormat::kQ8_0, WeightFormat::kQ4_K,
                                         WeightFormat::kQ5_K, WeightFormat::kQ6_K),
                         [](const auto& info) {
                           return std::string(WeightFormatName(info.param));
                         });

TEST(QuantisedGemmsArgumentsTest, RowsThatAreNoWholeBlocksAreRefused) {
  const auto backend = CreateCpuBackend({1, CpuBackendOptions::Isa::kPortable}).value();
  const std::vector<std::byte> bytes(1000);
  const auto refused = backend->LoadWeight({bytes.data(), WeightFormat::kQ4_K, 2, 96});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            "load weight: weight is [2, 96]; rows of q4_k have a multiple of 256 values");
}

}  // namespace
}  // namespace baton
