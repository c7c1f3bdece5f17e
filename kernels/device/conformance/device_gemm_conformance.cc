#include <bit>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/device/conformance/device_runtime_conformance.h"

namespace baton {
namespace {

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t ToBf16(float value) {  // rounds finite values to nearest even
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr uint16_t kNan = 0x7fc0;
// Value of the padding at the end of each output row. A GEMM must not change this padding.
constexpr float kUntouched = 12345.0f;

struct Shape {
  int rows, n, k;
  int in_padding, out_padding;
};

// Random operands. Elements that a GEMM must not read are NaN.
struct Operands {
  Operands(const Shape& s, uint32_t seed) : shape(s) {
    std::mt19937 random(seed);
    auto sample = [&] { return static_cast<int>(random() % 2001 - 1000) / 700.0f; };
    in.assign(static_cast<size_t>(s.rows) * (s.k + s.in_padding), kNan);
    for (int r = 0; r < s.rows; ++r) {
      for (int i = 0; i < s.k; ++i) in[r * (s.k + s.in_padding) + i] = ToBf16(sample());
    }
    weight.resize(static_cast<size_t>(s.n) * s.k);
    for (uint16_t& w : weight) w = ToBf16(sample());
    before.resize(static_cast<size_t>(s.rows) * s.n);
    for (float& value : before) value = FromBf16(ToBf16(sample()));
  }

  // Returns the exact result, and the sum of the absolute values of its terms.
  std::pair<double, double> Exact(int r, int n) const {
    double sum = 0, size = 0;
    for (int i = 0; i < shape.k; ++i) {
      const double term = double{FromBf16(in[r * (shape.k + shape.in_padding) + i])} *
                          FromBf16(weight[static_cast<size_t>(n) * shape.k + i]);
      sum += term;
      size += std::abs(term);
    }
    return {sum, size};
  }

  Shape shape;
  std::vector<uint16_t> in, weight;
  std::vector<float> before;
};

#define SKIP_WITHOUT_GEMMS()                                              \
  if (const absl::Status status = runtime_->GemmStatus(); !status.ok()) { \
    GTEST_SKIP() << status.message();                                     \
  }

TEST_P(DeviceRuntimeConformanceTest, EqualsDoubleArithmetic) {
  SKIP_WITHOUT_GEMMS();
  const Shape shapes[] = {{1, 1, 1, 0, 0},     {1, 64, 64, 0, 0},    {3, 5, 7, 3, 2},
                          {17, 33, 129, 0, 1}, {8, 192, 576, 64, 8}, {130, 40, 64, 0, 0},
                          {2, 257, 31, 1, 3}};
  uint32_t seed = 1;
  for (const Shape& s : shapes) {
    for (const bool accumulate : {false, true}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(absl::StrCat("[", s.rows, ", ", s.k, "] by ", s.n, " to ", DTypeName(type),
                                  accumulate ? ", accumulated" : ""));
        const Operands operands(s, seed++);
        const int stride = s.n + s.out_padding;
        std::vector<float> out(static_cast<size_t>(s.rows) * stride, kUntouched);
        for (int r = 0; r < s.rows; ++r) {
          for (int n = 0; n < s.n; ++n) {
            out[r * stride + n] = accumulate ? operands.before[r * s.n + n] : NAN;
          }
        }
        std::vector<uint16_t> narrow(out.size());
        for (size_t i = 0; i < out.size(); ++i) {
          narrow[i] = std::isnan(out[i]) ? kNan : ToBf16(out[i]);
        }
        DenseGemm gemm;
        gemm.in = Upload(operands.in);
        gemm.in_stride = s.k + s.in_padding;
        gemm.weight = Upload(operands.weight);
        gemm.out_stride = stride;
        gemm.out_type = type;
        gemm.rows = s.rows;
        gemm.n = s.n;
        gemm.k = s.k;
        gemm.accumulate = accumulate;
        if (type == DType::kF32) {
          float* const memory = Upload(out);
          gemm.out = memory;
          Ok(runtime_->Gemm(gemm, *stream_));
          out = Download(memory, out.size());
        } else {
          uint16_t* const memory = Upload(narrow);
          gemm.out = memory;
          Ok(runtime_->Gemm(gemm, *stream_));
          narrow = Download(memory, out.size());
          for (size_t i = 0; i < out.size(); ++i) out[i] = FromBf16(narrow[i]);
        }
        const float untouched = type == DType::kF32 ? kUntouched : FromBf16(ToBf16(kUntouched));
        for (int r = 0; r < s.rows; ++r) {
          for (int n = 0; n < s.n; ++n) {
            auto [sum, size] = operands.Exact(r, n);
            if (accumulate) sum += operands.before[r * s.n + n];
            // The error of a float sum of k terms, plus the rounding of the output.
            const double tolerance = (s.k + 1) * 0x1p-24 * (size + 2) +
                                     (type == DType::kBF16 ? std::abs(sum) * 0x1p-8 : 0);
            ASSERT_NEAR(out[r * stride + n], sum, tolerance) << r << ", " << n;
          }
          for (int n = s.n; n < stride; ++n) ASSERT_EQ(out[r * stride + n], untouched);
        }
      }
    }
  }
}

TEST_P(DeviceRuntimeConformanceTest, RefusesWhatHasNoMeaning) {
  SKIP_WITHOUT_GEMMS();
  const Operands operands({2, 8, 16, 0, 0}, 1);
  DenseGemm good;
  good.in = Upload(operands.in);
  good.in_stride = 16;
  good.weight = Upload(operands.weight);
  good.out = Upload(operands.before);
  good.out_stride = 8;
  good.out_type = DType::kF32;
  good.rows = 2;
  good.n = 8;
  good.k = 16;
  auto gemm = [&](auto change) {
    DenseGemm gemm = good;
    change(gemm);
    return runtime_->Gemm(gemm, *stream_).code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(gemm([](DenseGemm& p) { p.rows = -1; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.n = 0; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.k = -5; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.in_stride = 15; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.out_stride = 7; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.in = nullptr; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.weight = nullptr; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.out = nullptr; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.out_type = DType::kF16; }), invalid);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.algorithm = -1; }), invalid);
  const auto copies = Stream(StreamKind::kCopy);
  EXPECT_EQ(runtime_->Gemm(good, *copies).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(gemm([](DenseGemm& p) { p.rows = 0; }), absl::StatusCode::kOk);
  EXPECT_EQ(Download(static_cast<float*>(good.out), 16), operands.before) << "nothing has run";
}

TEST_P(DeviceRuntimeConformanceTest, EveryAlgorithmComputesTheSameGemm) {
  SKIP_WITHOUT_GEMMS();
  const Operands operands({16, 128, 256, 0, 0}, 5);
  DenseGemm gemm;
  gemm.in = Upload(operands.in);
  gemm.in_stride = 256;
  gemm.weight = Upload(operands.weight);
  gemm.out_stride = 128;
  gemm.out_type = DType::kF32;
  gemm.rows = 16;
  gemm.n = 128;
  gemm.k = 256;
  for (; gemm.algorithm < 8; ++gemm.algorithm) {
    float* const out = Upload(std::vector<float>(16 * 128, NAN));
    gemm.out = out;
    const absl::Status status = runtime_->Gemm(gemm, *stream_);
    if (absl::IsNotFound(status)) break;
    ASSERT_TRUE(status.ok()) << gemm.algorithm << ": " << status;
    const auto got = Download(out, 16 * 128);
    for (int r = 0; r < 16; ++r) {
      for (int n = 0; n < 128; ++n) {
        const auto [sum, size] = operands.Exact(r, n);
        ASSERT_NEAR(got[r * 128 + n], sum, 257 * 0x1p-24 * (size + 2)) << gemm.algorithm;
      }
    }
  }
  EXPECT_GE(gemm.algorithm, 1);
  gemm.algorithm = 10000;
  EXPECT_EQ(runtime_->Gemm(gemm, *stream_).code(), absl::StatusCode::kNotFound);
}

TEST_P(DeviceRuntimeConformanceTest, CanBeCapturedAndReplayed) {
  SKIP_WITHOUT_GEMMS();
  const Operands operands({4, 24, 32, 0, 0}, 3);
  float* const out = Upload(std::vector<float>(4 * 24, 0.0f));
  DenseGemm gemm;
  gemm.in = Upload(operands.in);
  gemm.in_stride = 32;
  gemm.weight = Upload(operands.weight);
  gemm.out = out;
  gemm.out_stride = 24;
  gemm.out_type = DType::kF32;
  gemm.rows = 4;
  gemm.n = 24;
  gemm.k = 32;
  gemm.accumulate = true;
  // Runs the GEMM once before the capture, as steps do. The library's first GEMM of a shape may
  // make calls that a capture does not allow.
  Ok(runtime_->Gemm(gemm, *stream_));
  Ok(runtime_->BeginCapture(*stream_));
  Ok(runtime_->Gemm(gemm, *stream_));
  auto graph = runtime_->EndCapture(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int i = 0; i < 3; ++i) Ok(runtime_->Replay(**graph, *stream_));
  const auto got = Download(out, 4 * 24);
  for (int r = 0; r < 4; ++r) {
    for (int n = 0; n < 24; ++n) {
      const auto [sum, size] = operands.Exact(r, n);
      EXPECT_NEAR(got[r * 24 + n], 4 * sum, 100 * 0x1p-24 * (4 * size + 1));
    }
  }
}

}  // namespace
}  // namespace baton
