#include "kernels/cpu/cpu_backend.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_conformance.h"
#include "kernels/cpu/angle.h"
#include "kernels/cpu/isa_kernels.h"

namespace baton {
namespace {

using Isa = CpuBackendOptions::Isa;

ConformanceParam ParamOf(const char* name, Isa isa) {
  const auto copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
  return {.name = name,
          .create =
              [isa](int threads) {
                return CreateCpuBackend({threads, isa});
              },
          .allocate =
              [](size_t bytes) {
                return std::shared_ptr<std::byte>(new std::byte[bytes],
                                                  std::default_delete<std::byte[]>());
              },
          .upload = copy,
          .download = copy};
}

std::vector<ConformanceParam> Params() {
  std::vector<ConformanceParam> params;
  if (CreateCpuBackend({1, Isa::kAvx2}).ok()) params.push_back(ParamOf("avx2", Isa::kAvx2));
  if (CreateCpuBackend({1, Isa::kAvx512}).ok()) params.push_back(ParamOf("avx512", Isa::kAvx512));
  return params;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformanceTest, testing::ValuesIn(Params()),
                         [](const auto& info) { return info.param.name; });

TEST(CpuBackendTest, RefusesThreadsAndInstructionsThatAreNotThere) {
  EXPECT_EQ(CreateCpuBackend({-1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuBackend({5000}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto avx512 = CreateCpuBackend({1, Isa::kAvx512});
  if (!avx512.ok()) {
    EXPECT_EQ(avx512.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(avx512.status().message()), testing::HasSubstr("AVX-512"));
  }
}

TEST(CpuBackendTest, OneNumericsIdForAllThreadsAndInstructionSets) {
  EXPECT_EQ(CreateCpuBackend({1, Isa::kPortable}).value()->numerics_id(), "cpu-f32x16-v1");
  EXPECT_EQ(CreateCpuBackend({3}).value()->numerics_id(), "cpu-f32x16-v1");
}

// One instruction set's kernels against the plain C++ that says what they compute.
struct IsaParam {
  Isa isa;
  const cpu::IsaKernels* kernels;
};
class IsaKernelsTest : public testing::TestWithParam<IsaParam> {
 protected:
  void SetUp() override {
    if (const auto backend = CreateCpuBackend({1, GetParam().isa}); !backend.ok()) {
      GTEST_SKIP() << backend.status().message();
    }
  }
  const cpu::IsaKernels& kernels() { return *GetParam().kernels; }
  const cpu::IsaKernels& plain() { return cpu::kPortableKernels; }
  std::vector<float> Normal(size_t n) {
    std::normal_distribution<float> draw;
    std::vector<float> out(n);
    for (float& x : out) x = draw(random_);
    return out;
  }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::mt19937 random_{12};
};
INSTANTIATE_TEST_SUITE_P(Cpu, IsaKernelsTest,
                         testing::Values(IsaParam{Isa::kAvx2, &cpu::kAvx2Kernels},
                                         IsaParam{Isa::kAvx512, &cpu::kAvx512Kernels}),
                         [](const auto& info) { return info.param.kernels->name; });

template <class T>
testing::AssertionResult SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      return testing::AssertionFailure() << "element " << i << ": " << +a[i] << " and " << +b[i];
    }
  }
  return testing::AssertionSuccess();
}

TEST_P(IsaKernelsTest, ConversionsAreExactThereAndNearestEvenBack) {
  for (const cpu::Element type : {cpu::Element::kF16, cpu::Element::kBf16}) {
    std::vector<uint16_t> all(65536), back(65536), plain_back(65536);
    for (int i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(65536), plain_wide(65536);
    kernels().widen(all.data(), type, 65536, wide.data());
    plain().widen(all.data(), type, 65536, plain_wide.data());
    // A NaN may be made quiet on the way; F16 does, Bf16 is a shift.
    EXPECT_TRUE(SameBytes(wide, plain_wide));
    // Every value, halfway to the next one, and on both sides of that.
    for (int shift = -1; shift <= 1; ++shift) {
      std::vector<float> between(65535);
      for (int i = 0; i < 65535; ++i) {
        between[i] = (wide[i] + wide[i + 1]) / 2;
        if (shift != 0) between[i] = std::nextafter(between[i], shift * INFINITY);
      }
      kernels().narrow(between.data(), 65535, type, back.data());
      plain().narrow(between.data(), 65535, type, plain_back.data());
      EXPECT_TRUE(SameBytes(back, plain_back));
    }
    kernels().narrow(wide.data(), 65536, type, back.data());
    for (int i = 0; i < 65536; ++i) {
      if (std::isnan(wide[i])) {
        std::vector<float> again(1);
        kernels().widen(&back[i], type, 1, again.data());
        EXPECT_TRUE(std::isnan(again[0]));
      } else {
        EXPECT_EQ(back[i], i);
      }
    }
    const float large[] = {3e38f, -3e38f, INFINITY, 65519.0f, 65520.0f};
    back.resize(5);
    plain_back.resize(5);
    kernels().narrow(large, 5, type, back.data());
    plain().narrow(large, 5, type, plain_back.data());
    EXPECT_TRUE(SameBytes(back, plain_back));
    if (type == cpu::Element::kF16) {
      EXPECT_THAT(back, testing::ElementsAre(0x7c00, 0xfc00, 0x7c00, 0x7bff, 0x7c00));
    }
  }
}

TEST_P(IsaKernelsTest, ExpHasTheSameBitsInEveryLaneAndIsAccurate) {
  std::vector<float> in;
  for (double x = -90; x < 90; x += 0.00037) in.push_back(static_cast<float>(x));
  for (const float x : {0.0f, -0.0f, INFINITY, -INFINITY, -1000.0f, 1000.0f, -87.3365f, 88.3762f}) {
    in.push_back(x);
  }
  std::vector<float> out(in.size()), plain_out(in.size());
  kernels().exp(in.data(), static_cast<int>(in.size()), out.data());
  plain().exp(in.data(), static_cast<int>(in.size()), plain_out.data());
  EXPECT_TRUE(SameBytes(out, plain_out));
  double worst = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] < -87.33f || in[i] > 88.37f) continue;
    const double exact = std::exp(static_cast<double>(in[i]));
    worst = std::max(worst, std::fabs(out[i] - exact) / (exact * 0x1p-23));
  }
  EXPECT_LT(worst, 1.5);
  const float ends[] = {0.0f, -0.0f, INFINITY, -INFINITY, -88, 89, NAN};
  float results[7];
  kernels().exp(ends, 7, results);
  EXPECT_EQ(results[0], 1);
  EXPECT_EQ(results[1], 1);
  EXPECT_EQ(results[2], INFINITY);
  EXPECT_EQ(results[3], 0);
  EXPECT_EQ(results[4], 0);
  EXPECT_EQ(results[5], INFINITY);
  EXPECT_TRUE(std::isnan(results[6]));
  for (int n = 1; n < 20; ++n) {
    std::vector<float> some(n);
    kernels().exp(in.data() + 1000, n, some.data());
    EXPECT_TRUE(SameBytes(some, std::vector<float>(out.begin() + 1000, out.begin() + 1000 + n)));
  }
}

TEST_P(IsaKernelsTest, ProductsHaveTheBitsOfPlainCode) {
  for (int round = 0; round < 40; ++round) {
    const int m = Pick(1, 40), n = Pick(1, cpu::kPanelCols),
              k = round % 4 == 0 ? Pick(500, 1600) : Pick(1, 300);
    const auto type = static_cast<cpu::Element>(round % 3);
    const ptrdiff_t stride = cpu::RoundUp16(k);
    auto x = Normal(m * stride);
    for (int row = 0; row < m; ++row) std::fill_n(x.begin() + row * stride + k, stride - k, 0.0f);
    const auto values = Normal(static_cast<size_t>(n) * k);
    std::vector<float> weights(values.size());  // room enough for all types
    plain().narrow(values.data(), static_cast<ptrdiff_t>(values.size()), type, weights.data());
    const auto bias = Normal(n), before = Normal(static_cast<size_t>(m) * n);
    const auto run = [&](const cpu::IsaKernels& isa, bool small) {
      auto out = before;
      const cpu::GemmTask task{x.data(),   stride, weights.data(), type, k, bias.data(),
                               out.data(), n,      round % 2 == 0};
      std::unique_ptr<float, void (*)(void*)> scratch(
          static_cast<float*>(std::aligned_alloc(64, (isa.gemm_scratch + 16) / 16 * 64)), free);
      if (small) {
        for (int row = 0; row < m; row += cpu::kSmallRows) {
          isa.gemm_small(task, row, std::min(m, row + cpu::kSmallRows), 0, n);
        }
      } else {
        isa.gemm(task, 0, m, 0, n, scratch.get());
      }
      return out;
    };
    const auto expected = run(plain(), false);
    EXPECT_TRUE(SameBytes(run(plain(), true), expected));
    EXPECT_TRUE(SameBytes(run(kernels(), false), expected)) << m << "x" << n << "x" << k;
    EXPECT_TRUE(SameBytes(run(kernels(), true), expected)) << m << "x" << n << "x" << k;
  }
}

TEST_P(IsaKernelsTest, NormsAndActivationsHaveTheBitsOfPlainCode) {
  for (int round = 0; round < 40; ++round) {
    const int n = Pick(1, 200);
    const auto in = Normal(n), up = Normal(n), weight = Normal(n);
    std::vector<float> out(n), plain_out(n);
    kernels().silu_mul(in.data(), up.data(), n, out.data());
    plain().silu_mul(in.data(), up.data(), n, plain_out.data());
    EXPECT_TRUE(SameBytes(out, plain_out));
    kernels().rms_norm(in.data(), weight.data(), cpu::Element::kF32, 1e-6f, n, out.data());
    plain().rms_norm(in.data(), weight.data(), cpu::Element::kF32, 1e-6f, n, plain_out.data());
    EXPECT_TRUE(SameBytes(out, plain_out));
    const int half = n / 2;
    if (half == 0) continue;
    const auto cosine = Normal(half), sine = Normal(half);
    kernels().rotate({in.data(), out.data(), 1, 2 * half, half, cosine.data(), sine.data()});
    plain().rotate({in.data(), plain_out.data(), 1, 2 * half, half, cosine.data(), sine.data()});
    EXPECT_TRUE(SameBytes(out, plain_out));
  }
}

TEST_P(IsaKernelsTest, AttentionHasTheBitsOfPlainCode) {
  for (int round = 0; round < 48; ++round) {
    const int dims[] = {16, 64, 24, 128, 10, 80};
    const int head_dim = dims[round % 6], rows = Pick(1, 12), group = Pick(1, 5),
              first = round % 8 == 7 ? Pick(1000, 1100) : Pick(0, 150), block_tokens = Pick(1, 20);
    const auto type = static_cast<cpu::Element>(round / 6 % 3);
    const size_t element = type == cpu::Element::kF32 ? 4 : 2;
    const int window = round < 24 ? 0 : Pick(1, first + rows);
    const int first_span = window == 0 ? 0 : std::max(0, first + 1 - window) / cpu::kKeySpan;
    const int blocks = (first + rows + block_tokens - 1) / block_tokens;
    const auto values = Normal(static_cast<size_t>(blocks) * 2 * block_tokens * head_dim);
    std::vector<float> pool(values.size());
    plain().narrow(values.data(), static_cast<ptrdiff_t>(values.size()), type, pool.data());
    std::vector<int32_t> table(blocks);
    for (int i = 0; i < blocks; ++i) table[i] = blocks - 1 - i;
    const auto q = Normal(static_cast<size_t>(rows) * group * head_dim);
    const auto run = [&](const cpu::IsaKernels& isa, bool by_spans) {
      std::vector<float> out(q.size());
      const size_t token = head_dim * element;
      const char* keys = reinterpret_cast<const char*>(pool.data());
      const cpu::AttentionTask task{.q = q.data(),
                                    .q_stride = group * head_dim,
                                    .out = out.data(),
                                    .out_stride = group * head_dim,
                                    .rows = rows,
                                    .group = group,
                                    .head_dim = head_dim,
                                    .first_position = first,
                                    .window = window,
                                    .first_span = first_span,
                                    .scale = 0.3f,
                                    .keys = keys,
                                    .values = keys + block_tokens * token,
                                    .block_bytes = 2 * block_tokens * token,
                                    .token_bytes = token,
                                    .block_tokens = block_tokens,
                                    .blocks = table.data(),
                                    .type = type};
      std::vector<float> scratch(isa.attend_scratch(rows * group, head_dim));
      if (!by_spans) {
        isa.attend(task, scratch.data());
        return out;
      }
      const int spans = (first + rows - 1) / cpu::kKeySpan + 1 - first_span;
      const size_t floats = isa.attend_partial(rows * group, head_dim);
      std::vector<float> partials(spans * floats, NAN);
      for (int span = spans - 1; span >= 0; --span) {
        isa.attend_span(task, first_span + span, partials.data() + span * floats, scratch.data());
      }
      isa.attend_merge(task, partials.data(), scratch.data());
      return out;
    };
    const auto expected = run(plain(), false);
    EXPECT_TRUE(SameBytes(run(plain(), true), expected));
    EXPECT_TRUE(SameBytes(run(kernels(), false), expected)) << head_dim << " " << rows;
    EXPECT_TRUE(SameBytes(run(kernels(), true), expected)) << head_dim << " " << rows;
  }
}

TEST(AngleTest, IsWithinHalfAUnitUpToAMillionAndHonestBeyond) {
  std::mt19937 random(13);
  const auto units = [](float got, double exact) {
    int exponent;
    std::frexp(exact, &exponent);
    return std::fabs(got - exact) / std::ldexp(1.0, exponent - 24);
  };
  double worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const float limit = std::pow(10.0f, static_cast<float>(i % 13) - 6);
    const float angle = std::uniform_real_distribution<float>(-limit, limit)(random);
    float cosine, sine;
    cpu::CosSin(angle, &cosine, &sine);
    worst = std::max(
        {worst, units(cosine, std::cos(double{angle})), units(sine, std::sin(double{angle}))});
  }
  EXPECT_LT(worst, 0.51);
  float cosine, sine;
  cpu::CosSin(0, &cosine, &sine);
  EXPECT_EQ(cosine, 1);
  EXPECT_EQ(sine, 0);
  cpu::CosSin(2e9f, &cosine, &sine);
  EXPECT_NEAR(cosine, std::cos(2e9), 1e-6);
  EXPECT_NEAR(sine, std::sin(2e9), 1e-6);
  for (const float angle : {INFINITY, -INFINITY, NAN, 3e9f}) {
    cpu::CosSin(angle, &cosine, &sine);
    EXPECT_TRUE(std::isnan(cosine) && std::isnan(sine));
  }
}

}  // namespace
}  // namespace baton
