#include "kernels/conformance/backend_conformance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/conformance/conformance_bench.h"

namespace baton {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendConformanceTest);

namespace {

TEST_P(BackendConformanceTest, EmbedCopiesTheRowsOfItsTokens) {
  Bench bench(GetParam(), 2, 1);
  for (const DType type : kTypes) {
    const int hidden = bench.Pick(1, 70);
    const auto table = bench.Weight(type, 11, hidden);
    const std::vector<TokenId> tokens = {3, 10, 0, 3};
    const auto out = bench.Output(4, hidden);
    ASSERT_TRUE(bench.backend().Embed({table.device, tokens, out.device}).ok());
    std::vector<float> expected;
    for (const TokenId token : tokens) {
      for (int c = 0; c < hidden; ++c) expected.push_back(table(token, c));
    }
    EXPECT_TRUE(SameBits(bench.Read(out.device), expected)) << DTypeName(type);
  }
}

TEST_P(BackendConformanceTest, RmsNormMatchesDoubleArithmeticAlsoInPlace) {
  Bench bench(GetParam(), 2, 2);
  for (const int n : {1, 7, 16, 33, 192, 1000}) {
    for (const DType type : kTypes) {
      const int rows = bench.Pick(1, 5);
      const auto in = bench.Activation(rows, n);
      const auto weight = bench.Weight(type, 1, n);
      const auto out = bench.Output(rows, n);
      ASSERT_TRUE(bench.backend().RmsNorm({in.device, weight.device, 1e-5f, out.device}).ok());
      std::vector<double> expected, tolerance;
      for (int r = 0; r < rows; ++r) {
        double squares = 0;
        for (int c = 0; c < n; ++c) squares += double{in(r, c)} * in(r, c);
        const double inverse = 1 / std::sqrt(squares / n + 1e-5f);
        for (int c = 0; c < n; ++c) {
          expected.push_back(in(r, c) * inverse * weight(0, c));
          tolerance.push_back(std::fabs(expected.back()) * (8 + n / 16) * 0x1p-24 +
                              bench.Slack(expected.back()));
        }
      }
      const auto first = bench.Read(out.device);
      EXPECT_TRUE(Near(first, expected, tolerance)) << n << " " << DTypeName(type);
      ASSERT_TRUE(bench.backend().RmsNorm({in.device, weight.device, 1e-5f, in.device}).ok());
      EXPECT_TRUE(SameBits(bench.Read(in.device), first));
    }
  }
}

TEST_P(BackendConformanceTest, RmsNormOfHeadsIsThatOfEachHeadAlone) {
  Bench bench(GetParam(), 2, 12);
  for (const int n : {2, 20, 64}) {
    const int heads = bench.Pick(2, 5), rows = 6;
    const auto in = bench.Activation(rows, heads * n);
    const auto weight = bench.Weight(DType::kBF16, 1, n);
    const auto out = bench.Output(rows, heads * n), one = bench.Output(rows, n);
    ASSERT_TRUE(bench.backend().RmsNorm({in.device, weight.device, 1e-6f, out.device}).ok());
    const auto all = bench.Read(out.device);
    for (int head = 0; head < heads; ++head) {
      const Tensor part = bench.Cols(in.device, head * n, n);
      ASSERT_TRUE(bench.backend().RmsNorm({part, weight.device, 1e-6f, one.device}).ok());
      std::vector<float> expected;
      for (int row = 0; row < rows; ++row) {
        const auto begin = all.begin() + (row * heads + head) * n;
        expected.insert(expected.end(), begin, begin + n);
      }
      EXPECT_TRUE(SameBits(bench.Read(one.device), expected)) << n << " head " << head;
    }
    ASSERT_TRUE(bench.backend().RmsNorm({in.device, weight.device, 1e-6f, in.device}).ok());
    EXPECT_TRUE(SameBits(bench.Read(in.device), all)) << n;
  }
}

TEST_P(BackendConformanceTest, GemmMatchesDoubleArithmetic) {
  if (!GetParam().gemms.ok()) GTEST_SKIP() << GetParam().gemms.message();
  Bench bench(GetParam(), 3, 3);
  for (int round = 0; round < 60; ++round) {
    const DType type = kTypes[round % 3];
    const int m = round < 24 ? round / 3 + 1 : bench.Pick(1, 120), n = bench.Pick(1, 90),
              k = round % 7 == 0 ? bench.Pick(500, 1300) : bench.Pick(1, 200);
    const bool with_bias = round % 2 == 0, accumulate = round % 5 < 2;
    const auto in = bench.Activation(m, k);
    const auto weight = bench.Weight(type, n, k);
    const auto bias = bench.Weight(kTypes[round / 2 % 3], 1, n);
    const auto out = accumulate ? bench.Activation(m, n) : bench.Output(m, n);
    ASSERT_TRUE(bench.backend()
                    .Gemm({in.device, weight.device, with_bias ? bias.device : Matrix{}, accumulate,
                           out.device})
                    .ok());
    std::vector<double> expected, tolerance;
    std::vector<float> inputs = in.values;
    if (GetParam().bf16_gemms && type == DType::kBF16) inputs = RoundTo(type, inputs);
    for (int r = 0; r < m; ++r) {
      for (int c = 0; c < n; ++c) {
        double sum = 0, size = 0;
        for (int i = 0; i < k; ++i) {
          const double input = inputs[static_cast<size_t>(r) * k + i];
          sum += input * weight(c, i);
          size += std::fabs(input * weight(c, i));
        }
        if (with_bias) sum += bias(0, c), size += std::fabs(bias(0, c));
        if (accumulate) sum += out(r, c), size += std::fabs(out(r, c));
        expected.push_back(sum);
        tolerance.push_back(size * (k / 16 + 8) * 0x1p-24 + bench.Slack(sum));
        // The backend may first add the bias to the previous content of `out`, and round the sum.
        // So an error of this sum is allowed, too.
        if (with_bias && accumulate) tolerance.back() += bench.Slack(bias(0, c) + out(r, c));
      }
    }
    EXPECT_TRUE(Near(bench.Read(out.device), expected, tolerance))
        << m << "x" << n << "x" << k << " " << DTypeName(type);
  }
}

TEST_P(BackendConformanceTest, GemmGivesARowTheSameBitsInEveryBatch) {
  if (!GetParam().gemms.ok()) GTEST_SKIP() << GetParam().gemms.message();
  if (!GetParam().batch_invariant_gemms) GTEST_SKIP() << "this backend does not promise it";
  struct Shape {
    int m, n, k;
  };
  for (const Shape shape : {Shape{130, 50, 40}, {70, 37, 1100}, {23, 300, 531}}) {
    for (const DType type : kTypes) {
      std::vector<float> alone;
      for (int threads = 1; threads <= GetParam().max_threads; ++threads) {
        // The seed does not depend on the number of threads, so the inputs are the same for every
        // number.
        Bench bench(GetParam(), threads, 4);
        const auto in = bench.Activation(shape.m, shape.k);
        const auto weight = bench.Weight(type, shape.n, shape.k);
        const auto bias = bench.Weight(type, 1, shape.n);
        const auto out = bench.Output(shape.m, shape.n);
        const auto run = [&](int first, int count) {
          ASSERT_TRUE(bench.backend()
                          .Gemm({bench.Rows(in.device, first, count), weight.device, bias.device,
                                 false, bench.Rows(out.device, first, count)})
                          .ok());
        };
        if (threads == 1) {
          for (int row = 0; row < shape.m; ++row) run(row, 1);
          alone = bench.Read(out.device);
        }
        run(0, shape.m);
        EXPECT_TRUE(SameBits(bench.Read(out.device), alone)) << threads << " threads";
        int chunk = 1;
        for (int row = 0; row < shape.m; row += chunk, chunk = bench.Pick(2, 33)) {
          chunk = std::min(chunk, shape.m - row);
          run(row, chunk);
        }
        EXPECT_TRUE(SameBits(bench.Read(out.device), alone)) << threads << " threads, chunks";
      }
    }
  }
}

TEST_P(BackendConformanceTest, SiluMulMatchesDoubleArithmeticAlsoInPlaceAndAtTheEnds) {
  Bench bench(GetParam(), 2, 5);
  for (const int n : {1, 8, 21, 1030}) {
    auto values = bench.Normal(3 * n, 4);
    const float ends[] = {0, -0.0f, 88, -88, 1000, -1000, 1e-30f, 3e38f};
    for (size_t i = 0; i < std::min<size_t>(8, values.size()); ++i) values[i] = ends[i];
    const auto gate = bench.Activation(3, n, values);
    auto ups = bench.Normal(3 * n);
    for (float& up : ups) up = std::clamp(up, -1.0f, 1.0f);
    const auto up = bench.Activation(3, n, ups);
    values = gate.values;
    ups = up.values;
    const auto out = bench.Output(3, n);
    ASSERT_TRUE(bench.backend().SiluMul({gate.device, up.device, out.device}).ok());
    std::vector<double> expected, tolerance;
    for (int i = 0; i < 3 * n; ++i) {
      expected.push_back(values[i] / (1 + std::exp(-double{values[i]})) * ups[i]);
      tolerance.push_back(std::fabs(expected.back()) * 8 * 0x1p-24 + 1e-35 +
                          bench.Slack(expected.back()));
    }
    const auto first = bench.Read(out.device);
    EXPECT_TRUE(Near(first, expected, tolerance)) << n;
    ASSERT_TRUE(bench.backend().SiluMul({gate.device, up.device, gate.device}).ok());
    EXPECT_TRUE(SameBits(bench.Read(gate.device), first));
  }
}

TEST_P(BackendConformanceTest, LogitsAreAProductOfTheChosenRows) {
  if (!GetParam().gemms.ok()) GTEST_SKIP() << GetParam().gemms.message();
  Bench bench(GetParam(), 2, 6);
  const int hidden = 65, vocabulary = 301;
  const auto in = bench.Activation(9, hidden);
  const auto head = bench.Weight(DType::kBF16, vocabulary, hidden);
  const auto out = bench.Output(9, vocabulary);
  ASSERT_TRUE(bench.backend().Gemm({in.device, head.device, {}, false, out.device}).ok());
  const auto all = bench.Read(out.device);
  for (const std::vector<int>& rows :
       {std::vector<int>{8}, {0, 3, 3}, {7, 6, 5, 4, 3, 2, 1}, std::vector<int>{}}) {
    std::vector<float> logits(rows.size() * vocabulary, kNan), expected;
    ASSERT_TRUE(
        bench.backend().Logits({in.device, head.device, rows, absl::MakeSpan(logits)}).ok());
    for (const int row : rows) {
      expected.insert(expected.end(), all.begin() + row * vocabulary,
                      all.begin() + (row + 1) * vocabulary);
    }
    if (GetParam().batch_invariant_gemms) {
      // Gemm has rounded `expected` to the tensor's type. `logits` are floats, so they are rounded
      // here before the comparison.
      EXPECT_TRUE(SameBits(RoundTo(bench.type(), logits), expected));
      continue;
    }
    std::vector<double> near(expected.begin(), expected.end()), tolerance;
    for (const float x : expected) {
      tolerance.push_back(std::sqrt(double{hidden}) * 16 * 0x1p-24 + 2 * bench.Slack(x));
    }
    EXPECT_TRUE(Near(logits, near, tolerance));
  }
}

TEST_P(BackendConformanceTest, BadShapesAreInvalidArgument) {
  Bench bench(GetParam(), 1, 11);
  Backend& backend = bench.backend();
  const auto code = [](const absl::Status& status) { return status.code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto t = [&](int rows, int cols) { return bench.Activation(rows, cols).device; };
  const auto w = [&](int rows, int cols) { return bench.Weight(DType::kF32, rows, cols).device; };

  EXPECT_EQ(code(backend.LoadWeight({nullptr, WeightFormat::kF32, 3, 3}).status()), kInvalid);
  EXPECT_EQ(code(backend.LoadWeight({&backend, WeightFormat::kF32, 0, 3}).status()), kInvalid);
  EXPECT_EQ(code(backend.Allocate(-1, 3).status()), kInvalid);
  EXPECT_EQ(code(backend.Allocate(3, 0).status()), kInvalid);
  EXPECT_EQ(code(backend.Embed({w(5, 8), {{0, 5}}, t(2, 8)})), kInvalid);
  EXPECT_EQ(code(backend.Embed({w(5, 8), {{0, -1}}, t(2, 8)})), kInvalid);
  EXPECT_EQ(code(backend.Embed({w(5, 8), {{0, 1}}, t(3, 8)})), kInvalid);
  EXPECT_EQ(code(backend.Embed({w(5, 8), {{0, 1}}, t(2, 9)})), kInvalid);
  EXPECT_EQ(code(backend.RmsNorm({t(2, 8), w(1, 9), 0, t(2, 8)})), kInvalid);
  EXPECT_EQ(code(backend.RmsNorm({t(2, 8), w(1, 8), 0, t(3, 8)})), kInvalid);
  EXPECT_EQ(code(backend.RmsNorm({t(2, 8), w(1, 8), kNan, t(2, 8)})), kInvalid);
  EXPECT_EQ(code(backend.Gemm({t(2, 8), w(4, 9), {}, false, t(2, 4)})), kInvalid);
  EXPECT_EQ(code(backend.Gemm({t(2, 8), w(4, 8), {}, false, t(2, 5)})), kInvalid);
  EXPECT_EQ(code(backend.Gemm({t(2, 8), w(4, 8), {}, false, t(3, 4)})), kInvalid);
  EXPECT_EQ(code(backend.Gemm({t(2, 8), w(4, 8), w(1, 3), false, t(2, 4)})), kInvalid);
  EXPECT_EQ(code(backend.SiluMul({t(2, 8), t(2, 7), t(2, 8)})), kInvalid);
  std::vector<float> logits(8);
  EXPECT_EQ(code(backend.Logits({t(2, 8), w(4, 8), {{0, 2}}, absl::MakeSpan(logits)})), kInvalid);
  EXPECT_EQ(code(backend.Logits({t(2, 8), w(4, 8), {{0}}, absl::MakeSpan(logits)})), kInvalid);
}

}  // namespace
}  // namespace baton
