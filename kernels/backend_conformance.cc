#include "kernels/backend_conformance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using testing::TestWithParam;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendConformanceTest);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Half of a unit in the last place of `type`, relative.
double Rounding(DType type) {
  return type == DType::kF32 ? 0x1p-24 : type == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

float FromBits(DType type, const std::byte* p) {
  if (type == DType::kF32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  if (type == DType::kBF16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31  ? (fraction != 0 ? kNan : INFINITY)
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(1024.0f + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// The nearest value of `type`, ties to even, found by search: slow and plainly right.
uint16_t ToBits16(DType type, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float magnitude = std::fabs(x);
  const auto value = [&](uint16_t bits) {
    return FromBits(type, reinterpret_cast<const std::byte*>(&bits));
  };
  const uint16_t infinity = type == DType::kF16 ? 0x7c00 : 0x7f80;
  uint16_t low = 0, high = infinity;  // value(low) <= magnitude < value(high)
  while (high - low > 1) {
    const uint16_t middle = (low + high) / 2;
    (value(middle) <= magnitude ? low : high) = middle;
  }
  if (value(low) == magnitude) return sign | low;
  const double above = high == infinity ? (type == DType::kF16 ? 65536.0 : 0x1p128) : value(high);
  const double down = magnitude - static_cast<double>(value(low)), up = above - magnitude;
  return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
}

std::vector<std::byte> Encode(DType type, const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * DTypeBytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kF32) {
      std::memcpy(&out[i * 4], &values[i], 4);
    } else {
      const uint16_t bits = ToBits16(type, values[i]);
      std::memcpy(&out[i * 2], &bits, 2);
    }
  }
  return out;
}

struct HostMatrix {
  int rows, cols;
  std::vector<float> values;  // after rounding to the type
  Matrix device;
  float operator()(int r, int c) const { return values[static_cast<size_t>(r) * cols + c]; }
};

struct HostTensor {
  int rows, cols;
  std::vector<float> values;
  Tensor device;
  float operator()(int r, int c) const { return values[static_cast<size_t>(r) * cols + c]; }
};

// One backend with the memory that a test puts into it.
class Bench {
 public:
  Bench(const ConformanceParam& param, int threads, uint32_t seed)
      : param_(param), random_(seed), backend_(param.create(threads).value()) {}

  Backend& backend() { return *backend_; }
  std::mt19937& random() { return random_; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::vector<float> Normal(size_t n, float deviation = 1.0f) {
    std::normal_distribution<float> draw(0, deviation);
    std::vector<float> out(n);
    for (float& x : out) x = draw(random_);
    return out;
  }

  HostMatrix Weight(DType type, int rows, int cols, float deviation = 1.0f) {
    HostMatrix m{rows, cols, {}, {}};
    const auto bytes = Encode(type, Normal(static_cast<size_t>(rows) * cols, deviation));
    for (size_t i = 0; i < bytes.size(); i += DTypeBytes(type)) {
      m.values.push_back(FromBits(type, &bytes[i]));
    }
    // Files promise no alignment: a byte off, NaN on both sides.
    constexpr size_t kMargin = 64;
    std::vector<std::byte> padded(bytes.size() + 2 * kMargin, std::byte{0xff});
    std::copy(bytes.begin(), bytes.end(), padded.begin() + kMargin + 1);
    weights_.push_back(std::move(padded));
    m.device =
        backend_->LoadWeight({weights_.back().data() + kMargin + 1, type, rows, cols}).value();
    return m;
  }

  // A view into wider memory that is NaN around it.
  HostTensor Activation(int rows, int cols, std::vector<float> values) {
    HostTensor t{rows, cols, std::move(values), {}};
    const int before = Pick(0, 5), stride = before + cols + Pick(0, 5);
    Tensor whole = backend_->Allocate(rows, stride).value();
    std::vector<float> padded(static_cast<size_t>(rows) * whole.stride, kNan);
    for (int r = 0; r < rows; ++r) {
      std::copy_n(t.values.begin() + static_cast<size_t>(r) * cols, cols,
                  padded.begin() + static_cast<size_t>(r) * whole.stride + before);
    }
    if (!padded.empty()) param_.upload(whole.data, padded.data(), padded.size() * 4);
    t.device = {static_cast<float*>(whole.data) + before, rows, cols, whole.stride};
    return t;
  }
  HostTensor Activation(int rows, int cols) {
    return Activation(rows, cols, Normal(static_cast<size_t>(rows) * cols));
  }
  HostTensor Output(int rows, int cols) {
    return Activation(rows, cols, std::vector<float>(static_cast<size_t>(rows) * cols, kNan));
  }

  std::vector<float> Read(const Tensor& t) {
    EXPECT_TRUE(backend_->Synchronize().ok());
    std::vector<float> out(static_cast<size_t>(t.rows) * t.cols);
    for (int r = 0; r < t.rows; ++r) {
      param_.download(out.data() + static_cast<size_t>(r) * t.cols,
                      static_cast<const float*>(t.data) + static_cast<size_t>(r) * t.stride,
                      t.cols * 4);
    }
    return out;
  }

  std::shared_ptr<std::byte> Memory(const std::vector<std::byte>& bytes) {
    auto memory = param_.allocate(bytes.size());
    param_.upload(memory.get(), bytes.data(), bytes.size());
    return memory;
  }
  std::vector<std::byte> Bytes(const std::byte* memory, size_t size) {
    EXPECT_TRUE(backend_->Synchronize().ok());
    std::vector<std::byte> out(size);
    param_.download(out.data(), memory, size);
    return out;
  }

 private:
  const ConformanceParam& param_;
  std::mt19937 random_;
  std::vector<std::vector<std::byte>> weights_;
  std::unique_ptr<Backend> backend_;
};

Tensor Rows(const Tensor& t, int first, int count) {
  return {static_cast<float*>(t.data) + static_cast<size_t>(first) * t.stride, count, t.cols,
          t.stride};
}

testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " != " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], 4) != 0) {
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return testing::AssertionSuccess();
}

// `tolerance` beside each expected value.
testing::AssertionResult Near(const std::vector<float>& got, const std::vector<double>& expected,
                              const std::vector<double>& tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!(std::fabs(got[i] - expected[i]) <= tolerance[i])) {
      return testing::AssertionFailure() << "element " << i << " is " << got[i] << ", expected "
                                         << expected[i] << " +- " << tolerance[i];
    }
  }
  return testing::AssertionSuccess();
}

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
          tolerance.push_back(std::fabs(expected.back()) * (8 + n / 16) * 0x1p-24);
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
      Tensor part = in.device;
      part.data = static_cast<float*>(part.data) + head * n;
      part.cols = n;
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
    if (GetParam().bf16_activations && type == DType::kBF16) {
      const auto rounded = Encode(type, inputs);
      for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = FromBits(type, &rounded[2 * i]);
    }
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
        tolerance.push_back(size * (k / 16 + 8) * 0x1p-24);
      }
    }
    EXPECT_TRUE(Near(bench.Read(out.device), expected, tolerance))
        << m << "x" << n << "x" << k << " " << DTypeName(type);
  }
}

TEST_P(BackendConformanceTest, GemmGivesARowTheSameBitsInEveryBatch) {
  struct Shape {
    int m, n, k;
  };
  for (const Shape shape : {Shape{130, 50, 40}, {70, 37, 1100}, {23, 300, 531}}) {
    for (const DType type : kTypes) {
      std::vector<float> alone;
      for (int threads = 1; threads <= GetParam().max_threads; ++threads) {
        Bench bench(GetParam(), threads, 4);  // the same seed, so the same numbers
        const auto in = bench.Activation(shape.m, shape.k);
        const auto weight = bench.Weight(type, shape.n, shape.k);
        const auto bias = bench.Weight(type, 1, shape.n);
        const auto out = bench.Output(shape.m, shape.n);
        const auto run = [&](int first, int count) {
          ASSERT_TRUE(bench.backend()
                          .Gemm({Rows(in.device, first, count), weight.device, bias.device, false,
                                 Rows(out.device, first, count)})
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
    const auto out = bench.Output(3, n);
    ASSERT_TRUE(bench.backend().SiluMul({gate.device, up.device, out.device}).ok());
    std::vector<double> expected, tolerance;
    for (int i = 0; i < 3 * n; ++i) {
      expected.push_back(values[i] / (1 + std::exp(-double{values[i]})) * ups[i]);
      tolerance.push_back(std::fabs(expected.back()) * 8 * 0x1p-24 + 1e-35);
    }
    const auto first = bench.Read(out.device);
    EXPECT_TRUE(Near(first, expected, tolerance)) << n;
    ASSERT_TRUE(bench.backend().SiluMul({gate.device, up.device, gate.device}).ok());
    EXPECT_TRUE(SameBits(bench.Read(gate.device), first));
  }
}

TEST_P(BackendConformanceTest, LogitsAreAProductOfTheChosenRows) {
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
    EXPECT_TRUE(SameBits(logits, expected));
  }
}

// Sequences over one pool, their blocks in random order and NaN wherever nothing was written.
struct Scene {
  KvLayout layout;
  int heads = 0;
  std::vector<std::vector<BlockId>> blocks;
  std::shared_ptr<std::byte> pool;
  size_t pool_bytes = 0;

  KvView view() const { return {pool.get(), layout}; }
};

Scene MakeScene(Bench& bench, KvLayout layout, int group, const std::vector<int>& lengths) {
  Scene scene{layout, layout.kv_heads * group, {}, nullptr, 0};
  int total = 0;
  for (const int length : lengths) total += layout.BlocksFor(length);
  std::vector<BlockId> order(total + 3);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), bench.random());
  size_t next = 0;
  for (const int length : lengths) {
    const int count = layout.BlocksFor(length);
    scene.blocks.emplace_back(order.begin() + next, order.begin() + next + count);
    next += count;
  }
  scene.pool_bytes = layout.BlockBytes() * order.size();
  scene.pool = bench.Memory(std::vector<std::byte>(scene.pool_bytes, std::byte{0xff}));
  return scene;
}

std::vector<float> Frequencies(int head_dim, float theta = 10000) {
  std::vector<float> out;
  for (int i = 0; i < head_dim; i += 2) {
    out.push_back(std::pow(theta, -static_cast<float>(i) / head_dim));
  }
  return out;
}

TEST_P(BackendConformanceTest, RopeRotatesAndWritesNothingButItsOwnSlots) {
  Bench bench(GetParam(), 2, 7);
  int round = 0;
  for (const int head_dim : {2, 6, 16, 24, 64, 128}) {
    const DType type = kTypes[round++ % 3];
    const int group = bench.Pick(1, 4), block_tokens = bench.Pick(1, 20);
    const KvLayout layout{3, bench.Pick(1, 3), head_dim, block_tokens, type};
    Scene scene = MakeScene(bench, layout, group, {40, 1010, 1});
    // Three rows at 37, two at 1000, one at 0; row 3 belongs to nobody.
    const std::vector<SequenceRows> sequences = {
        {0, 3, 37, scene.blocks[0]}, {4, 2, 1000, scene.blocks[1]}, {6, 1, 0, scene.blocks[2]}};
    const int cols = layout.kv_heads * head_dim;
    const auto q = bench.Activation(7, scene.heads * head_dim);
    const auto k = bench.Activation(7, cols), v = bench.Activation(7, cols);
    // Every sequence its own, or one for all; every third time the end of a head stays as it was.
    const int pairs = round % 3 == 1 ? (head_dim + 2) / 4 : head_dim / 2;
    const auto first = Frequencies(2 * pairs), second = Frequencies(2 * pairs, 77);
    std::vector<Rope> ropes = {{first, 1}, {second, 1.2f}, {first, 0.7f}};
    if (round % 2 == 0) ropes.resize(1);
    ASSERT_TRUE(
        bench.backend()
            .RopeAndWriteKv({q.device, k.device, v.device, ropes, 1, sequences, scene.view()})
            .ok());
    EXPECT_TRUE(SameBits(bench.Read(k.device), k.values));

    auto pool = bench.Bytes(scene.pool.get(), scene.pool_bytes);
    std::vector<double> expected(q.values.begin(), q.values.end()), tolerance(expected.size(), 0.0);
    const auto rotated = [&](const Rope& rope, const HostTensor& t, int row, int head, int i,
                             int position) {
      const double x = t(row, head * head_dim + i);
      if (i >= 2 * pairs) return x;
      const double angle = static_cast<float>(position) * rope.inverse_frequency[i % pairs];
      const double partner = t(row, head * head_dim + (i + pairs) % (2 * pairs));
      return rope.scale *
             (x * std::cos(angle) + (i < pairs ? -partner : partner) * std::sin(angle));
    };
    for (size_t s = 0; s < sequences.size(); ++s) {
      const SequenceRows& sequence = sequences[s];
      const Rope& rope = ropes[ropes.size() == 1 ? 0 : s];
      for (int i = 0; i < sequence.rows; ++i) {
        const int row = sequence.first_row + i, position = sequence.first_position + i;
        for (int c = 0; c < q.cols; ++c) {
          const size_t at = static_cast<size_t>(row) * q.cols + c;
          expected[at] = rotated(rope, q, row, c / head_dim, c % head_dim, position);
          tolerance[at] = c % head_dim < 2 * pairs ? 2e-6 : 0;
        }
        for (int c = 0; c < cols; ++c) {
          const int head = c / head_dim, element = c % head_dim;
          const auto at = [&](KvLayout::Plane plane) {
            return pool.data() +
                   layout.HeadOffset(sequence.blocks[position / block_tokens], 1, plane, head) +
                   position % block_tokens * layout.TokenBytes() + element * DTypeBytes(type);
          };
          const double key = rotated(rope, k, row, head, element, position);
          EXPECT_NEAR(FromBits(type, at(KvLayout::kKeys)), key,
                      std::fabs(key) * Rounding(type) + 2e-6);
          const auto value = Encode(type, {v(row, c)});
          EXPECT_EQ(std::memcmp(at(KvLayout::kValues), value.data(), value.size()), 0)
              << DTypeName(type) << " of " << v(row, c);
          std::memset(at(KvLayout::kKeys), 0xff, DTypeBytes(type));
          std::memset(at(KvLayout::kValues), 0xff, DTypeBytes(type));
        }
      }
    }
    EXPECT_TRUE(Near(bench.Read(q.device), expected, tolerance)) << head_dim;
    EXPECT_TRUE(
        std::all_of(pool.begin(), pool.end(), [](std::byte b) { return b == std::byte{255}; }));
  }
}

// K or V of whole sequences as the pool holds it: [sequence][position, kv_head, element].
std::vector<std::vector<float>> ReadPlane(Bench& bench, const Scene& scene, int layer,
                                          KvLayout::Plane plane, const std::vector<int>& lengths) {
  const KvLayout& layout = scene.layout;
  const auto pool = bench.Bytes(scene.pool.get(), scene.pool_bytes);
  std::vector<std::vector<float>> out;
  for (size_t s = 0; s < lengths.size(); ++s) {
    out.emplace_back();
    for (int position = 0; position < lengths[s]; ++position) {
      for (int head = 0; head < layout.kv_heads; ++head) {
        for (int i = 0; i < layout.head_dim; ++i) {
          out.back().push_back(FromBits(
              layout.type, pool.data() +
                               layout.HeadOffset(scene.blocks[s][position / layout.block_tokens],
                                                 layer, plane, head) +
                               position % layout.block_tokens * layout.TokenBytes() +
                               i * DTypeBytes(layout.type)));
        }
      }
    }
  }
  return out;
}

// Sequences told position by position, each row with its own q, k and v.
struct Story {
  Scene scene;
  std::vector<int> lengths, first_row;
  HostTensor q, k, v;  // q as attention takes it
  Tensor unused;       // a q to be rotated
  std::vector<float> frequencies;
  int window;
};

Story MakeStory(Bench& bench, const KvLayout& layout, int group, const std::vector<int>& lengths,
                int window = 0) {
  Story story{MakeScene(bench, layout, group, lengths), lengths, {}, {}, {}, {}, {}, {}, window};
  int rows = 0;
  for (const int length : lengths) {
    story.first_row.push_back(rows);
    rows += length;
  }
  const int cols = layout.kv_heads * layout.head_dim;
  story.q = bench.Activation(rows, group * cols);
  story.k = bench.Activation(rows, cols);
  story.v = bench.Activation(rows, cols);
  story.unused = bench.Activation(rows, cols).device;
  story.frequencies = Frequencies(layout.head_dim);
  return story;
}

// Positions [begin, end) of some sequences as one step: write, then attend.
struct Part {
  int sequence, begin, end;
};
void RunStep(Bench& bench, const Story& story, const std::vector<Part>& parts, const Tensor& out) {
  std::vector<SequenceRows> sequences;
  for (const Part& part : parts) {
    sequences.push_back({story.first_row[part.sequence] + part.begin, part.end - part.begin,
                         part.begin, story.scene.blocks[part.sequence]});
  }
  const KvView kv = story.scene.view();
  const Rope rope{story.frequencies, 1};
  ASSERT_TRUE(bench.backend()
                  .RopeAndWriteKv(
                      {story.unused, story.k.device, story.v.device, {&rope, 1}, 1, sequences, kv})
                  .ok());
  ASSERT_TRUE(bench.backend()
                  .Attention({story.q.device, story.scene.heads,
                              1 / std::sqrt(static_cast<float>(story.scene.layout.head_dim)),
                              story.window, 1, sequences, kv, out})
                  .ok());
}

TEST_P(BackendConformanceTest, AttentionMatchesDoubleArithmetic) {
  Bench bench(GetParam(), 3, 8);
  for (int round = 0; round < 27; ++round) {
    const int dims[] = {8, 16, 24, 64, 80, 128, 256, 2, 34};
    const int windows[] = {0, bench.Pick(1, 20), bench.Pick(40, 140)};
    const KvLayout layout{2, bench.Pick(1, 3), dims[round % 9], bench.Pick(1, 20),
                          kTypes[round % 3]};
    const int group = round % 4 == 3 ? 8 : bench.Pick(1, 4);
    const std::vector<int> lengths = {bench.Pick(1, 90), bench.Pick(1, 9), bench.Pick(60, 140)};
    const Story story = MakeStory(bench, layout, group, lengths, windows[round / 3 % 3]);
    const auto out = bench.Output(story.q.rows, story.q.cols);
    RunStep(bench, story, {{0, 0, lengths[0]}, {1, 0, lengths[1]}, {2, 0, lengths[2]}}, out.device);
    const auto keys = ReadPlane(bench, story.scene, 1, KvLayout::kKeys, lengths);
    const auto values = ReadPlane(bench, story.scene, 1, KvLayout::kValues, lengths);
    const int dim = layout.head_dim;
    const double scale = 1 / std::sqrt(static_cast<float>(dim));
    std::vector<double> expected(static_cast<size_t>(story.q.rows) * story.q.cols),
        tolerance(expected.size());
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int position = 0; position < lengths[s]; ++position) {
        const int row = story.first_row[s] + position;
        for (int head = 0; head < story.scene.heads; ++head) {
          const auto at = [&](int key) {
            return (static_cast<size_t>(key) * layout.kv_heads + head / group) * dim;
          };
          const int first = story.window > 0 ? std::max(0, position + 1 - story.window) : 0;
          std::vector<double> p(position + 1, -INFINITY);
          double max = -INFINITY, sum = 0;
          for (int key = first; key <= position; ++key) {
            p[key] = 0;
            for (int i = 0; i < dim; ++i) {
              p[key] += double{story.q(row, head * dim + i)} * keys[s][at(key) + i] * scale;
            }
            max = std::max(max, p[key]);
          }
          for (double& x : p) sum += x = std::exp(x - max);
          for (int i = 0; i < dim; ++i) {
            double result = 0, size = 0;
            for (int key = first; key <= position; ++key) {
              result += p[key] / sum * values[s][at(key) + i];
              size += p[key] / sum * std::fabs(values[s][at(key) + i]);
            }
            const size_t index = static_cast<size_t>(row) * story.q.cols + head * dim + i;
            expected[index] = result;
            // Scores of up to some tens, each off by a few units, then a sum over the keys.
            tolerance[index] = size * (64 + position / 4) * 0x1p-22;
          }
        }
      }
    }
    EXPECT_TRUE(Near(bench.Read(out.device), expected, tolerance))
        << layout.Fingerprint() << " group " << group << " window " << story.window;
  }
}

TEST_P(BackendConformanceTest, AttentionGivesARowTheSameBitsInPrefillDecodeAndEveryBatch) {
  struct Shape {
    KvLayout layout;
    int group;
    std::vector<int> lengths;
    int window;
  };
  const Shape shapes[] = {
      {{2, 2, 64, 16, DType::kBF16}, 3, {70, 5, 131}, 0},
      {{2, 1, 40, 7, DType::kF16}, 1, {129, 64, 1}, 0},
      {{2, 1, 16, 13, DType::kF32}, 2, {2100, 1024, 1025}, 0},
      {{2, 2, 64, 16, DType::kBF16}, 3, {70, 5, 131}, 40},
      {{2, 1, 16, 5, DType::kF16}, 5, {300, 65, 9}, 7},
      {{2, 1, 40, 7, DType::kF32}, 1, {129, 64, 1}, 1},
      {{2, 1, 16, 13, DType::kF32}, 2, {2100, 1024, 1025}, 1000},
      {{2, 1, 32, 16, DType::kBF16}, 1, {1200, 64, 1025}, 64},
  };
  for (const Shape& shape : shapes) {
    const std::vector<int>& n = shape.lengths;
    std::vector<float> expected;
    for (int threads = 1; threads <= GetParam().max_threads; ++threads) {
      const auto fresh = [&](const std::function<void(Bench&, const Story&, const Tensor&)>& run) {
        Bench bench(GetParam(), threads, 9);
        const Story story = MakeStory(bench, shape.layout, shape.group, n, shape.window);
        const auto out = bench.Output(story.q.rows, story.q.cols);
        run(bench, story, out.device);
        return bench.Read(out.device);
      };
      const auto whole = fresh([&](Bench& bench, const Story& story, const Tensor& out) {
        RunStep(bench, story, {{0, 0, n[0]}, {1, 0, n[1]}, {2, 0, n[2]}}, out);
      });
      if (threads == 1) expected = whole;
      EXPECT_TRUE(SameBits(whole, expected)) << threads << " threads";
      for (const float x : whole) ASSERT_FALSE(std::isnan(x));
      // Chunks of random length, the sequences in turn and together.
      EXPECT_TRUE(SameBits(fresh([&](Bench& bench, const Story& story, const Tensor& out) {
                             std::mt19937 random(threads);
                             std::vector<int> done(n.size());
                             for (bool any = true; any;) {
                               any = false;
                               std::vector<Part> parts;
                               for (size_t s = 0; s < n.size(); ++s) {
                                 const int rows = std::min<int>(
                                     n[s] - done[s], random() % (random() % 2 == 0 ? 3 : 300));
                                 any |= done[s] < n[s];
                                 if (rows == 0) continue;
                                 parts.push_back({static_cast<int>(s), done[s], done[s] + rows});
                                 done[s] += rows;
                               }
                               RunStep(bench, story, parts, out);
                             }
                           }),
                           expected))
          << threads << " threads, chunks";
      // Token by token, as decode does, from a prefilled start.
      EXPECT_TRUE(SameBits(fresh([&](Bench& bench, const Story& story, const Tensor& out) {
                             for (size_t s = 0; s < n.size(); ++s) {
                               const int start = std::max(1, n[s] - 80);
                               RunStep(bench, story, {{static_cast<int>(s), 0, start}}, out);
                               for (int p = start; p < n[s]; ++p) {
                                 RunStep(bench, story, {{static_cast<int>(s), p, p + 1}}, out);
                               }
                             }
                           }),
                           expected))
          << threads << " threads, decode";
    }
  }
}

TEST_P(BackendConformanceTest, AWindowThatReachesTheStartGivesTheBitsOfNone) {
  std::vector<float> expected;
  for (const int window : {0, 200, 1 << 30}) {
    Bench bench(GetParam(), 2, 13);
    const Story story = MakeStory(bench, {2, 2, 24, 16, DType::kF16}, 2, {200, 3}, window);
    const auto out = bench.Output(story.q.rows, story.q.cols);
    RunStep(bench, story, {{0, 0, 200}, {1, 0, 3}}, out.device);
    const auto got = bench.Read(out.device);
    if (expected.empty()) expected = got;
    EXPECT_TRUE(SameBits(got, expected)) << window;
  }
}

TEST_P(BackendConformanceTest, NothingOutsideOfItsWindowTouchesARow) {
  for (const int window : {1, 50, 64, 1030}) {
    for (const int rows : {1, 3, 40}) {
      constexpr int kLength = 1200;
      Bench bench(GetParam(), 2, 14);
      const Story story = MakeStory(bench, {2, 1, 16, 8, DType::kBF16}, 2, {kLength}, window);
      const auto out = bench.Output(story.q.rows, story.q.cols);
      RunStep(bench, story, {{0, 0, kLength}}, out.device);
      const auto expected = bench.Read(Rows(out.device, kLength - rows, rows));
      // NaN in every slot that none of the last rows sees.
      const KvLayout& layout = story.scene.layout;
      auto pool = bench.Bytes(story.scene.pool.get(), story.scene.pool_bytes);
      for (int position = 0; position < kLength - rows + 1 - window; ++position) {
        for (const auto plane : {KvLayout::kKeys, KvLayout::kValues}) {
          std::byte* slot = pool.data() +
                            layout.HeadOffset(story.scene.blocks[0][position / 8], 1, plane, 0) +
                            position % 8 * layout.TokenBytes();
          std::memset(slot, 0xff, layout.TokenBytes());
        }
      }
      GetParam().upload(story.scene.pool.get(), pool.data(), pool.size());
      RunStep(bench, story, {{0, kLength - rows, kLength}}, out.device);
      EXPECT_TRUE(SameBits(bench.Read(Rows(out.device, kLength - rows, rows)), expected))
          << "window " << window << ", " << rows << " rows";
    }
  }
}

TEST_P(BackendConformanceTest, AttentionBitsDoNotDependOnBlocks) {
  std::vector<float> expected;
  for (const int block_tokens : {1, 3, 16, 64, 200}) {
    Bench numbers(GetParam(), 1, 10);
    const auto q = numbers.Normal(150 * 64), k = numbers.Normal(150 * 32),
               v = numbers.Normal(150 * 32);
    Bench bench(GetParam(), 2, block_tokens);
    const KvLayout layout{2, 2, 16, block_tokens, DType::kBF16};
    Story story = MakeStory(bench, layout, 2, {150});
    story.q = bench.Activation(150, 64, q);
    story.k = bench.Activation(150, 32, k);
    story.v = bench.Activation(150, 32, v);
    const auto out = bench.Output(150, 64);
    RunStep(bench, story, {{0, 0, 150}}, out.device);
    const auto got = bench.Read(out.device);
    if (expected.empty()) expected = got;
    EXPECT_TRUE(SameBits(got, expected)) << block_tokens;
  }
}

TEST_P(BackendConformanceTest, BadShapesAreInvalidArgument) {
  Bench bench(GetParam(), 1, 11);
  Backend& backend = bench.backend();
  const auto code = [](const absl::Status& status) { return status.code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto t = [&](int rows, int cols) { return bench.Activation(rows, cols).device; };
  const auto w = [&](int rows, int cols) { return bench.Weight(DType::kF32, rows, cols).device; };

  EXPECT_EQ(code(backend.LoadWeight({nullptr, DType::kF32, 3, 3}).status()), kInvalid);
  EXPECT_EQ(code(backend.LoadWeight({&backend, DType::kF32, 0, 3}).status()), kInvalid);
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

  const KvLayout layout{2, 2, 8, 4, DType::kF16};
  Scene scene = MakeScene(bench, layout, 2, {9});
  const auto frequencies = Frequencies(8);
  const std::vector<SequenceRows> good = {{0, 2, 7, scene.blocks[0]}};
  const auto rope_with = [&](const std::vector<SequenceRows>& sequences, KvView kv, int layer,
                             int q_cols, int k_cols, const std::vector<Rope>& ropes) {
    return code(backend.RopeAndWriteKv(
        {t(2, q_cols), t(2, k_cols), t(2, k_cols), ropes, layer, sequences, kv}));
  };
  const auto rope = [&](const std::vector<SequenceRows>& sequences, KvView kv, int layer,
                        int q_cols, int k_cols) {
    return rope_with(sequences, kv, layer, q_cols, k_cols, {{frequencies, 1}});
  };
  const auto attend = [&](const std::vector<SequenceRows>& sequences, KvView kv, int layer,
                          int heads, int cols) {
    return code(backend.Attention({t(2, cols), heads, 1, 0, layer, sequences, kv, t(2, cols)}));
  };
  const KvView kv = scene.view();
  EXPECT_EQ(rope(good, kv, 1, 32, 16), absl::StatusCode::kOk);
  EXPECT_EQ(attend(good, kv, 1, 4, 32), absl::StatusCode::kOk);
  EXPECT_EQ(code(backend.Attention({t(2, 32), 4, 1, -1, 1, good, kv, t(2, 32)})), kInvalid);
  const auto long_frequencies = Frequencies(10);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {}), kInvalid);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {{{}, 1}}), kInvalid);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {{long_frequencies, 1}}), kInvalid);
  EXPECT_EQ(rope_with(good, kv, 1, 32, 16, {{frequencies, 1}, {frequencies, 1}}), kInvalid);
  EXPECT_EQ(rope(good, kv, 2, 32, 16), kInvalid);
  EXPECT_EQ(attend(good, kv, -1, 4, 32), kInvalid);
  EXPECT_EQ(rope(good, kv, 1, 30, 16), kInvalid);
  EXPECT_EQ(rope(good, kv, 1, 32, 24), kInvalid);
  EXPECT_EQ(attend(good, kv, 1, 3, 24), kInvalid);
  EXPECT_EQ(attend(good, kv, 1, 4, 40), kInvalid);
  KvView odd = kv;
  odd.layout.head_dim = 7;
  EXPECT_EQ(rope(good, odd, 1, 28, 14), kInvalid);
  KvView no_pool = kv;
  no_pool.data = nullptr;
  EXPECT_EQ(attend(good, no_pool, 1, 4, 32), kInvalid);
  for (const SequenceRows& bad : {SequenceRows{0, 3, 0, scene.blocks[0]},
                                  {-1, 1, 0, scene.blocks[0]},
                                  {0, -1, 0, scene.blocks[0]},
                                  {0, 1, -1, scene.blocks[0]},
                                  {0, 1, 12, scene.blocks[0]},
                                  {0, 1, 1 << 24, scene.blocks[0]},
                                  {0, 1, 0, {}}}) {
    EXPECT_EQ(rope({bad}, kv, 1, 32, 16), kInvalid);
    EXPECT_EQ(attend({bad}, kv, 1, 4, 32), kInvalid);
  }
  const std::vector<BlockId> negative = {-1, 0, 1};
  EXPECT_EQ(attend({{0, 1, 0, negative}}, kv, 1, 4, 32), kInvalid);
}

}  // namespace
}  // namespace baton
