#include "kernels/cpu/cpu_backend.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <immintrin.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/conformance/backend_conformance.h"
#include "kernels/cpu/angle.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/isa_kernels.h"

namespace baton {
namespace {

using Isa = CpuBackendOptions::Isa;

ConformanceParam ParamOf(const char* name, Isa isa, CpuNumerics numerics) {
  const auto copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
  return {.name = name,
          .create =
              [isa, numerics](int threads) {
                return CreateCpuBackend({threads, isa, numerics});
              },
          .allocate =
              [](size_t bytes) {
                return std::shared_ptr<std::byte>(new std::byte[bytes],
                                                  std::default_delete<std::byte[]>());
              },
          .upload = copy,
          .download = copy,
          // All instruction sets share the code that splits work among threads, so only some are
          // tested with more than two threads.
          .max_threads = isa == Isa::kAvx512 || isa == Isa::kAmx ? 4 : 2,
          .bf16_gemms = numerics != CpuNumerics::kF32};
}

// Paths to test: a summation order and the instruction set that computes it. PathTest reports the
// paths that this processor lacks.
struct Path {
  const char* name;
  Isa isa;
  CpuNumerics numerics;
};
const Path kPaths[] = {{"avx2", Isa::kAvx2, CpuNumerics::kF32},
                       {"avx512", Isa::kAvx512, CpuNumerics::kF32},
                       {"amx_by_avx2", Isa::kAvx2, CpuNumerics::kAmx},
                       {"amx_by_avx512", Isa::kAvx512, CpuNumerics::kAmx},
                       {"amx_by_tiles", Isa::kAmx, CpuNumerics::kAmx},
                       {"avx512_bf16", Isa::kAuto, CpuNumerics::kAvx512Bf16}};

std::vector<ConformanceParam> Params() {
  std::vector<ConformanceParam> params;
  for (const Path& path : kPaths) {
    if (CreateCpuBackend({1, path.isa, path.numerics}).ok()) {
      params.push_back(ParamOf(path.name, path.isa, path.numerics));
    }
  }
  return params;
}

class PathTest : public testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Cpu, PathTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return info.param.name; });

TEST_P(PathTest, RunsHereOrSaysWhatIsMissing) {
  const auto backend = CreateCpuBackend({1, GetParam().isa, GetParam().numerics});
  if (!backend.ok()) {
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(backend.status().message()), testing::HasSubstr("this processor"));
    GTEST_SKIP() << backend.status().message();
  }
  // The portable kernels must have the same id, because backends with equal ids must give equal
  // bits.
  const auto plain = CreateCpuBackend({1, Isa::kPortable, GetParam().numerics});
  EXPECT_EQ((*backend)->numerics_id(), (*plain)->numerics_id());
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

TEST(CpuBackendTest, NumericsIdNamesTheOrderAlone) {
  const auto id = [](const CpuBackendOptions& options) {
    return CreateCpuBackend(options).value()->numerics_id();
  };
  EXPECT_EQ(id({3, Isa::kPortable}), "cpu-f32x16-v1");
  EXPECT_EQ(id({1, Isa::kPortable, CpuNumerics::kAmx}), "cpu-amx-bf16-v1");
  EXPECT_EQ(id({1, Isa::kPortable, CpuNumerics::kAvx512Bf16}), "cpu-avx512-bf16-v1");
  EXPECT_EQ(id({1, Isa::kPortable, CpuNumerics::kQ8}), "cpu-q8-v1");
}

TEST(CpuBackendTest, NumericsAreChosenByNameAndTypeOfWeights) {
  const auto chosen = [](const char* name, WeightFormat weights) {
    return ParseCpuNumerics(name, weights).value();
  };
  for (const WeightFormat wide : {WeightFormat::kF32, WeightFormat::kF16}) {
    EXPECT_EQ(chosen("auto", wide), CpuNumerics::kF32);
    EXPECT_EQ(chosen("portable", wide), CpuNumerics::kF32);
    EXPECT_EQ(chosen("f32", wide), CpuNumerics::kF32);
    for (const char* name : {"amx", "avx512-bf16"}) {
      const auto refused = ParseCpuNumerics(name, wide);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(refused.status().message()),
                  testing::AllOf(testing::HasSubstr(name),
                                 testing::HasSubstr(std::string(WeightFormatName(wide)))));
    }
  }
  for (const char* name : {"auto", "portable", "q8"}) {
    EXPECT_EQ(chosen(name, WeightFormat::kQ4_K), CpuNumerics::kQ8);
  }
  EXPECT_EQ(chosen("f32", WeightFormat::kQ8_0), CpuNumerics::kF32);
  for (const auto& [name, weights] :
       {std::pair("q8", WeightFormat::kF16), std::pair("amx", WeightFormat::kQ4_0)}) {
    EXPECT_EQ(ParseCpuNumerics(name, weights).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(chosen("f32", WeightFormat::kBF16), CpuNumerics::kF32);
  EXPECT_EQ(chosen("portable", WeightFormat::kBF16), CpuNumerics::kAmx);
  EXPECT_EQ(chosen("avx512-bf16", WeightFormat::kBF16), CpuNumerics::kAvx512Bf16);
  const auto unknown = ParseCpuNumerics("sse", WeightFormat::kBF16);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              testing::AllOf(testing::HasSubstr("'sse'"), testing::HasSubstr("avx512-bf16")));
  // The summation order that `auto` chooses must also be available.
  const CpuNumerics automatic = chosen("auto", WeightFormat::kBF16);
  if (CreateCpuBackend({1}).ok()) {
    EXPECT_TRUE(CreateCpuBackend({1, Isa::kAuto, automatic}).ok());
  }
  if (CreateCpuBackend({1, Isa::kAmx, CpuNumerics::kAmx}).ok()) {
    EXPECT_EQ(automatic, CpuNumerics::kAmx);
  }
}

// Parameters that compare one instruction set's kernels with the portable kernels, which are the
// reference implementation.
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
    std::normal_distribution<float> sample;
    std::vector<float> out(n);
    for (float& x : out) x = sample(random_);
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
    // Even NaNs must have the same bits. Widening F16 may make a signalling NaN quiet, so the plain
    // kernels must do that too. Widening Bf16 never does, because it only shifts the bits.
    EXPECT_TRUE(SameBytes(wide, plain_wide));
    // Tests the midpoint between each value and the next, and the floats on both sides of that
    // midpoint.
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

TEST_P(IsaKernelsTest, GemmsHaveTheBitsOfPlainCode) {
  for (int round = 0; round < 40; ++round) {
    const int m = Pick(1, 40), n = Pick(1, cpu::kPanelCols),
              k = round % 4 == 0 ? Pick(500, 1600) : Pick(1, 300);
    const auto type = static_cast<cpu::Element>(round % 3);
    const ptrdiff_t stride = cpu::RoundUp16(k);
    auto x = Normal(m * stride);
    for (int row = 0; row < m; ++row) std::fill_n(x.begin() + row * stride + k, stride - k, 0.0f);
    const auto values = Normal(static_cast<size_t>(n) * k);
    std::vector<float> weights(values.size());  // large enough for all types
    plain().narrow(values.data(), static_cast<ptrdiff_t>(values.size()), type, weights.data());
    const auto bias = Normal(n), before = Normal(static_cast<size_t>(m) * n);
    const auto run = [&](const cpu::IsaKernels& isa, bool small) {
      auto out = before;
      const cpu::GemmTask task{x.data(),   stride, weights.data(), type, k, bias.data(),
                               out.data(), n,      round % 2 == 0};
      std::unique_ptr<float, void (*)(void*)> scratch(
          static_cast<float*>(std::aligned_alloc(64, (isa.gemm_scratch + 16) / 16 * 64)), free);
      if (small) {
        for (int row = 0; row < m; row += isa.small_rows) {
          isa.gemm_small(task, row, std::min(m, row + isa.small_rows), 0, n);
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
                                    .soft_cap = round % 5 == 2 ? 2.0f : 0,
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

// Parameters of tests that compare the kernels of one bf16 summation order (`kernels`) with the
// reference implementation of this order (`plain`).
struct Bf16Param {
  const char* name;
  Isa isa;
  CpuNumerics numerics;
  const cpu::Bf16Kernels *kernels, *plain;
};
class Bf16KernelsTest : public testing::TestWithParam<Bf16Param> {
 protected:
  void SetUp() override {
    const auto backend = CreateCpuBackend({1, GetParam().isa, GetParam().numerics});
    if (!backend.ok()) GTEST_SKIP() << backend.status().message();
  }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  // Multiplies `x` [m][k] by `w` [n][k] in pieces, as the backend does. Copies `w` to an odd
  // address first. All memory that is not an input holds NaN before.
  std::vector<float> Run(const cpu::Bf16Kernels& kernels, const std::vector<float>& x,
                         const std::vector<uint16_t>& w, int m, int n, int k,
                         const std::vector<float>& bias, const std::vector<float>& before) {
    const auto memory = [](size_t bytes) {
      std::unique_ptr<char, void (*)(void*)> p(
          static_cast<char*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), free);
      std::memset(p.get(), 0xff, bytes);
      return p;
    };
    const auto packed = memory(kernels.packed_bytes(m, k)),
               scratch = memory(kernels.scratch_bytes(std::min(m, kernels.block_rows), k)),
               weights = memory(w.size() * 2 + 1);
    std::memcpy(weights.get() + 1, w.data(), w.size() * 2);
    for (int row = 0; row < m; row += 16) kernels.pack(x.data(), k, m, k, row, packed.get());
    auto out = before;
    const cpu::Bf16Task task{.x = packed.get(),
                             .m = m,
                             .k = k,
                             .w = reinterpret_cast<const cpu::Bf16*>(weights.get() + 1),
                             .bias = bias.empty() ? nullptr : bias.data(),
                             .out = out.data(),
                             .out_stride = n,
                             .accumulate = !bias.empty()};
    for (int m0 = 0; m0 < m; m0 += kernels.block_rows) {
      const int m1 = std::min(m, m0 + kernels.block_rows);
      for (int n0 = 0; n0 < n;) {
        const int n1 = std::min(n, n0 + kernels.panel_cols * Pick(1, 9));
        kernels.gemm(task, m0, m1, n0, n1, scratch.get());
        n0 = n1;
      }
    }
    return out;
  }

  std::mt19937 random_{14};
};
INSTANTIATE_TEST_SUITE_P(Cpu, Bf16KernelsTest,
                         testing::Values(Bf16Param{"amx_by_avx2", Isa::kAvx2, CpuNumerics::kAmx,
                                                   &cpu::kAmxOrderAvx2, &cpu::kAmxOrderPlain},
                                         Bf16Param{"amx_by_avx512", Isa::kAvx512, CpuNumerics::kAmx,
                                                   &cpu::kAmxOrderAvx512, &cpu::kAmxOrderPlain},
                                         Bf16Param{"amx_by_tiles", Isa::kAmx, CpuNumerics::kAmx,
                                                   &cpu::kAmxTiles, &cpu::kAmxOrderPlain},
                                         Bf16Param{"avx512_bf16", Isa::kAuto,
                                                   CpuNumerics::kAvx512Bf16, &cpu::kPairDotAvx512,
                                                   &cpu::kPairDotPlain}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Bf16KernelsTest, GemmsHaveTheBitsOfPlainCode) {
  std::normal_distribution<float> normal;
  for (int round = 0; round < 60; ++round) {
    const int m = round < 34 ? round + 1 : Pick(1, 90), n = Pick(1, 70),
              k = round % 5 == 0 ? Pick(500, 1100) : Pick(1, 200);
    std::vector<float> x(static_cast<size_t>(m) * k), bias(n), before(static_cast<size_t>(m) * n);
    for (auto* values : {&x, &bias, &before}) {
      for (float& value : *values) value = normal(random_);
    }
    std::vector<uint16_t> w(static_cast<size_t>(n) * k);
    for (uint16_t& value : w) {
      const float sampled = normal(random_);
      uint32_t bits;
      std::memcpy(&bits, &sampled, 4);
      value = static_cast<uint16_t>(bits >> 16);
    }
    if (round % 2 == 0) bias.clear();
    const auto expected = Run(*GetParam().plain, x, w, m, n, k, bias, before);
    EXPECT_TRUE(SameBytes(Run(*GetParam().kernels, x, w, m, n, k, bias, before), expected))
        << m << "x" << n << "x" << k;
  }
}

// Tests the ends of the number range: denormal inputs, products and sums, values near the smallest
// normal number, and values near the largest.
TEST_P(Bf16KernelsTest, DenormalsAreFlushedAndTheLargestOverflowAsInPlainCode) {
  int zeros = 0, infinite = 0, normal = 0;
  for (int round = 0; round < 60; ++round) {
    const int m = Pick(1, 40), n = Pick(1, 40), k = Pick(1, 6) * 16 + Pick(0, 3);
    const auto sample = [&](int low, int high) {
      return static_cast<uint16_t>((random_() & 0x807f) | static_cast<uint32_t>(Pick(low, high))
                                                              << 7);
    };
    // Kinds of inputs. Each has limits for the biased exponents: low and high for x, then low and
    // high for w. A product has the sum of the exponents of its factors, minus 127. So the first
    // three kinds have denormals, and the last one may have products that overflow.
    const int kinds[][4] = {
        {0, 2, 120, 130}, {50, 66, 58, 66}, {0, 254, 0, 10}, {180, 191, 185, 191}};
    const int* kind = kinds[round % 4];
    std::vector<float> x(static_cast<size_t>(m) * k);
    for (float& value : x) {
      const uint32_t bits =
          static_cast<uint32_t>(sample(kind[0], kind[1])) << 16 | (random_() & 0xffff);
      std::memcpy(&value, &bits, 4);
    }
    std::vector<uint16_t> w(static_cast<size_t>(n) * k);
    for (uint16_t& value : w) value = sample(kind[2], kind[3]);
    const std::vector<float> before(static_cast<size_t>(m) * n, NAN);
    const auto expected = Run(*GetParam().plain, x, w, m, n, k, {}, before);
    const auto got = Run(*GetParam().kernels, x, w, m, n, k, {}, before);
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(expected[i])) {  // infinity minus infinity: any NaN is right
        ASSERT_TRUE(std::isnan(got[i]));
        continue;
      }
      ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
          << got[i] << ", expected " << expected[i] << ", round " << round;
      zeros += got[i] == 0;
      infinite += std::isinf(got[i]);
      normal += std::isnormal(got[i]);
    }
  }
  EXPECT_GT(zeros, 100);
  EXPECT_GT(infinite, 100);
  EXPECT_GT(normal, 1000);
}

TEST_P(Bf16KernelsTest, LeavesTheControlRegisterAlone) {
  const unsigned before = _mm_getcsr();
  Run(*GetParam().kernels, std::vector<float>(64, 1e-30f), std::vector<uint16_t>(64, 1), 1, 1, 64,
      {}, {0});
  EXPECT_EQ(_mm_getcsr() & ~0x3fu, before & ~0x3fu);
}

TEST(DispatchTest, AnotherOrderIsFoundOut) {
  EXPECT_TRUE(cpu::SumsAs(cpu::kAmxOrderPlain, cpu::kAmxOrderPlain));
  EXPECT_FALSE(cpu::SumsAs(cpu::kPairDotPlain, cpu::kAmxOrderPlain));
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
