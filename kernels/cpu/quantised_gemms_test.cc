#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/instruction_sets.h"
#include "kernels/formats/quantised_product.h"

// GEMMs with quantised weights, through the backend and its threads.
namespace baton {
namespace cpu {
extern const QuantisedKernels kQuantisedEmulatedAmx;  // kernels_emulated.cc
}

namespace {

constexpr int kOutputs = 77;

class QuantisedGemmsTest : public testing::TestWithParam<WeightFormat> {
 protected:
  // Blocks of 32 values also have a chunk of the kernels that is not full.
  static int InputsOf(WeightFormat format) { return BlockValues(format) == 32 ? 544 : 512; }

  // Offsets of the f16 in a block.
  static std::vector<size_t> HalvesOf(WeightFormat format) {
    switch (format) {
      case WeightFormat::kQ4_0:
      case WeightFormat::kQ5_0:
      case WeightFormat::kQ8_0:
        return {0};
      case WeightFormat::kQ6_K:
        return {208};
      default:
        return {0, 2};
    }
  }

  static std::vector<std::byte> RandomRows(WeightFormat format, int rows, int inputs) {
    std::mt19937 random(5);
    const size_t row = RowBytes(format, inputs);
    std::vector<std::byte> bytes(rows * row);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // Sums of two products are largest where all bits are set, or all but the sign.
    std::fill_n(bytes.begin(), row, std::byte{0xff});
    std::fill_n(bytes.begin() + row, row, std::byte{0x80});
    // All scales are finite: no f16 begins with five ones.
    const size_t block = BlockBytes(format);
    for (size_t begin = 0; begin < bytes.size(); begin += block) {
      for (const size_t at : HalvesOf(format)) bytes[begin + at + 1] &= std::byte{0xbf};
    }
    return bytes;
  }
  static std::vector<float> RandomFloats(int count, int seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }

  // The first rows have values that are rounded in a way of their own: none but zeros, infinite
  // ones and NaN, and some so small that their scale is 0 or has few bits.
  static std::vector<float> Activations(int rows, int inputs) {
    std::vector<float> x = RandomFloats(rows * inputs, 1);
    if (rows < 5) return x;
    std::fill_n(&x[0], 96, 0.0f);
    x[inputs + 40] = std::numeric_limits<float>::infinity();
    x[2 * inputs + 70] = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < inputs; ++i) x[3 * inputs + i] *= i < 64 ? 1e-42f : 1e-36f;
    for (int i = 0; i < inputs; ++i) x[4 * inputs + i] = i % 3 == 0 ? -127 : i % 5 + 0.5f;
    if (rows < 7) return x;
    std::fill_n(&x[5 * inputs], inputs, 127.0f);
    std::fill_n(&x[6 * inputs], inputs, -127.0f);
    return x;
  }

  // Instructions that this processor has.
  static std::vector<CpuBackendOptions::Isa> Isas() {
    using Isa = CpuBackendOptions::Isa;
    std::vector<Isa> isas = {Isa::kPortable, Isa::kAvx2};
    if (cpu::HostInstructionSets().avx512_vnni) isas.push_back(Isa::kAvx512);
    if (cpu::HostInstructionSets().amx_int8) isas.push_back(Isa::kAmx);
    return isas;
  }

  // All NaN are alike.
  static std::vector<uint32_t> Bits(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (const float value : values) {
      bits.push_back(std::isnan(value) ? ~0u : std::bit_cast<uint32_t>(value));
    }
    return bits;
  }

  // Returns in * weight^T + bias, added to ones if `accumulate`.
  static std::vector<float> Gemm(CpuNumerics numerics, int threads, const Matrix& weight, int rows,
                                 bool accumulate,
                                 CpuBackendOptions::Isa isa = CpuBackendOptions::Isa::kPortable) {
    const auto backend = CreateCpuBackend({threads, isa, numerics}).value();
    const int inputs = weight.cols, outputs = weight.rows;
    const Tensor in = backend->Allocate(rows, inputs).value();
    const Tensor out = backend->Allocate(rows, outputs).value();
    const std::vector<float> x = Activations(rows, inputs), b = RandomFloats(outputs, 2);
    for (int row = 0; row < rows; ++row) {
      std::memcpy(static_cast<float*>(in.data) + row * in.stride, &x[row * inputs],
                  inputs * sizeof(float));
      std::fill_n(static_cast<float*>(out.data) + row * out.stride, outputs, 1.0f);
    }
    const Matrix bias = {b.data(), WeightFormat::kF32, 1, outputs};
    const Matrix loaded = backend->LoadWeight(weight).value();
    EXPECT_TRUE(backend->Gemm({in, loaded, bias, accumulate, out}).ok());
    std::vector<float> result;
    for (int row = 0; row < rows; ++row) {
      const float* const from = static_cast<float*>(out.data) + row * out.stride;
      result.insert(result.end(), from, from + outputs);
    }
    return result;
  }

  const int inputs_ = InputsOf(GetParam());
  const std::vector<std::byte> bytes_ = RandomRows(GetParam(), kOutputs, inputs_);
  const Matrix weight_ = {bytes_.data(), GetParam(), kOutputs, inputs_};
};

TEST_P(QuantisedGemmsTest, WithFloatActivationsTheBitsAreThoseOfTheSameWeightsAsFloats) {
  std::vector<float> wide(kOutputs * inputs_);
  for (int row = 0; row < kOutputs; ++row) {
    Dequantise(GetParam(), &bytes_[row * RowBytes(GetParam(), inputs_)],
               absl::MakeSpan(wide).subspan(row * inputs_, inputs_));
  }
  const Matrix floats = {wide.data(), WeightFormat::kF32, kOutputs, inputs_};
  for (const int rows : {1, 3, 9, 100}) {
    for (const bool accumulate : {false, true}) {
      const std::vector<float> expected = Gemm(CpuNumerics::kF32, 2, floats, rows, accumulate);
      const std::vector<float> got = Gemm(CpuNumerics::kF32, 2, weight_, rows, accumulate);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << rows << " rows";
    }
  }
}

TEST_P(QuantisedGemmsTest, WithRoundedActivationsTheyAreTheProductsOfTheDefinition) {
  using Isa = CpuBackendOptions::Isa;
  std::vector<WeightGroup> groups(inputs_ / WeightGroup::kValues);
  std::vector<ActivationGroup> rounded(groups.size());
  for (const int rows : {1, 2, 3, 5, 100, 131}) {
    const std::vector<float> x = Activations(rows, inputs_), b = RandomFloats(kOutputs, 2);
    std::vector<float> expected;
    for (int row = 0; row < rows; ++row) {
      QuantiseActivations(absl::MakeConstSpan(x).subspan(row * inputs_, inputs_),
                          absl::MakeSpan(rounded));
      for (int out = 0; out < kOutputs; ++out) {
        UnpackGroups(GetParam(), &bytes_[out * RowBytes(GetParam(), inputs_)],
                     absl::MakeSpan(groups));
        expected.push_back(QuantisedProduct(groups, rounded) + b[out]);
      }
    }
    for (const Isa isa : Isas()) {
      const std::vector<float> sum = Gemm(CpuNumerics::kQ8, 3, weight_, rows, false, isa);
      const std::vector<float> added = Gemm(CpuNumerics::kQ8, 1, weight_, rows, true, isa);
      for (size_t i = 0; i < expected.size(); ++i) {
        if (std::isnan(expected[i])) {
          ASSERT_TRUE(std::isnan(sum[i]) && std::isnan(added[i])) << i;
          continue;
        }
        ASSERT_EQ(std::bit_cast<uint32_t>(sum[i]), std::bit_cast<uint32_t>(expected[i]))
            << rows << " rows, " << i << ", " << static_cast<int>(isa);
        ASSERT_EQ(added[i], 1 + expected[i]) << rows << " rows, " << i;
      }
    }
  }
}

TEST_P(QuantisedGemmsTest, TilesGiveTheSameBits) {
  if (!cpu::HostInstructionSets().avx512_vnni) GTEST_SKIP() << "no AVX-512 VNNI here";
  const int groups = inputs_ / WeightGroup::kValues;
  const auto block = static_cast<cpu::Blocks>(static_cast<int>(GetParam()) -
                                              static_cast<int>(WeightFormat::kQ4_0));
  for (const int rows : {1, 5, 16, 37, 128}) {
    const std::vector<float> in = Activations(rows, inputs_);
    const auto run = [&](const cpu::QuantisedKernels& kernels) {
      std::vector<int8_t> x(in.size());
      std::vector<float> scales(rows * groups), out(rows * kOutputs);
      std::vector<int32_t> sums(2 * rows * groups);
      for (int m = 0; m < rows; ++m) {
        kernels.quantise(&in[m * inputs_], inputs_, &x[m * inputs_], &scales[m * groups],
                         &sums[2 * m * groups]);
      }
      const std::unique_ptr<char, decltype(&std::free)> scratch(
          static_cast<char*>(std::aligned_alloc(64, (kernels.scratch_bytes + 63) / 64 * 64)),
          &std::free);
      kernels.gemm[static_cast<int>(block)](
          {.x = x.data(),
           .x_scale = scales.data(),
           .x_sums = sums.data(),
           .k = inputs_,
           .w = reinterpret_cast<const char*>(bytes_.data()),
           .row_bytes = static_cast<ptrdiff_t>(RowBytes(GetParam(), inputs_)),
           .bias = nullptr,
           .out = out.data(),
           .out_stride = kOutputs,
           .accumulate = false},
          0, rows, 0, kOutputs, scratch.get());
      return Bits(out);
    };
    EXPECT_EQ(run(cpu::kQuantisedEmulatedAmx), run(cpu::kQuantisedAvx2)) << rows << " rows";
  }
}

// The kernels read whole vectors. The page behind these weights can't be read.
TEST_P(QuantisedGemmsTest, NothingIsReadBehindTheWeights) {
  const size_t page = sysconf(_SC_PAGESIZE), room = 16 * page;
  void* const memory =
      mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const end = static_cast<std::byte*>(memory) + room;
  ASSERT_EQ(mprotect(end, page, PROT_NONE), 0);
  const int block = BlockValues(GetParam());
  for (const int inputs : {block, 3 * block, InputsOf(GetParam())}) {
    for (const int outputs : {2, 16, 33, 64}) {
      const std::vector<std::byte> bytes = RandomRows(GetParam(), outputs, inputs);
      ASSERT_LE(bytes.size(), room);
      std::copy(bytes.begin(), bytes.end(), end - bytes.size());
      const Matrix heap = {bytes.data(), GetParam(), outputs, inputs};
      const Matrix mapped = {end - bytes.size(), GetParam(), outputs, inputs};
      for (const auto isa : Isas()) {
        for (const int rows : {1, 8}) {
          EXPECT_EQ(Bits(Gemm(CpuNumerics::kQ8, 2, mapped, rows, false, isa)),
                    Bits(Gemm(CpuNumerics::kQ8, 1, heap, rows, false)))
              << outputs << " outputs of " << inputs << ", " << rows << " rows";
        }
      }
    }
  }
  munmap(memory, room + page);
}

TEST_P(QuantisedGemmsTest, RowsOfAnEmbeddingAreExact) {
  const auto backend = CreateCpuBackend({1, CpuBackendOptions::Isa::kPortable}).value();
  const Tensor out = backend->Allocate(2, inputs_).value();
  const std::vector<TokenId> tokens = {76, 3};
  ASSERT_TRUE(backend->Embed({weight_, tokens, out}).ok());
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<float> expected(inputs_);
    Dequantise(GetParam(), &bytes_[tokens[i] * RowBytes(GetParam(), inputs_)],
               absl::MakeSpan(expected));
    EXPECT_EQ(std::memcmp(static_cast<float*>(out.data) + i * out.stride, expected.data(),
                          inputs_ * sizeof(float)),
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

TEST(QuantisedDispatchTest, KernelsThatMultiplyInAnotherWayAreFound) {
  EXPECT_TRUE(cpu::MultipliesAs(cpu::kQuantisedAvx2, cpu::kQuantisedAvx2));
  if (cpu::HostInstructionSets().avx512_vnni) {
    EXPECT_TRUE(cpu::MultipliesAs(cpu::kQuantisedEmulatedAmx, cpu::kQuantisedVnni));
  }
  cpu::QuantisedKernels wrong = cpu::kQuantisedAvx2;
  wrong.gemm[static_cast<int>(cpu::Blocks::kQ6_K)] = [](const cpu::QuantisedTask& task, int m0,
                                                        int m1, int n0, int n1, char* scratch) {
    cpu::kQuantisedAvx2.gemm[static_cast<int>(cpu::Blocks::kQ6_K)](task, m0, m1, n0, n1, scratch);
    task.out[(m1 - 1) * task.out_stride + n1 - 1] *= 1.0001f;
  };
  EXPECT_FALSE(cpu::MultipliesAs(wrong, cpu::kQuantisedAvx2));
}

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
