#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa_kernels.h"

// Tests GEMMs that are larger than every piece into which the kernels cut a GEMM, through the
// backend and its threads. The expected results come from a second implementation of the summation
// orders in README.md. Weights, activations and outputs lie directly beside memory that must not be
// touched.
namespace baton {
namespace {

using Isa = CpuBackendOptions::Isa;

// Memory between two pages that end the process when touched. The data lies directly behind the
// first page or directly before the second one.
class Guarded {
 public:
  enum Side { kFront, kBack };
  Guarded(size_t bytes, Side side) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (bytes + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    base_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(base_, MAP_FAILED);
    char* begin = static_cast<char*>(base_) + page;
    EXPECT_EQ(mprotect(begin, inner, PROT_READ | PROT_WRITE), 0);
    std::memset(begin, 0xff, inner);  // fills with NaN
    data_ = side == kFront ? begin : begin + inner - bytes;
  }
  template <class T>
  Guarded(const std::vector<T>& values, Side side) : Guarded(values.size() * sizeof(T), side) {
    std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* data() const { return data_; }

 private:
  void* base_;
  size_t mapped_;
  char* data_;
};

// Rounds floats to the 16-bit `type`, to nearest even. Widened() converts back exactly.
std::vector<uint16_t> Narrowed(const std::vector<float>& wide, DType type) {
  std::vector<uint16_t> narrow(wide.size());
  cpu::kPortableKernels.narrow(wide.data(), static_cast<ptrdiff_t>(wide.size()),
                               static_cast<cpu::Element>(type), narrow.data());
  return narrow;
}
std::vector<float> Widened(const std::vector<uint16_t>& narrow, DType type) {
  std::vector<float> wide(narrow.size());
  cpu::kPortableKernels.widen(narrow.data(), static_cast<cpu::Element>(type),
                              static_cast<ptrdiff_t>(wide.size()), wide.data());
  return wide;
}

// The reference functions below take sixteen weight rows at a time, as the columns of a matrix
// [k][16].
constexpr int kColumns = 16;
constexpr int kWhole = 32;  // k is padded to a multiple of it

// F32Order, AmxOrder and PairOrder below are reference implementations of the three summation
// orders f32, amx and avx512-bf16. Each multiplies one row of activations with sixteen weight rows.
// They are compiled with fused multiply-adds, which the tested kernels need as well: without them,
// checking every output would take too long.
#define BATON_FUSED __attribute__((target("avx2,fma"), optimize("O3")))

void Tree(float lanes[16][kColumns], float* out) {
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) {
      for (int c = 0; c < kColumns; ++c) lanes[l][c] += lanes[l + half][c];
    }
  }
  std::memcpy(out, lanes[0], sizeof(lanes[0]));
}

// Sums in the order f32: there are sixteen lanes, and lane l (0 to 15) adds up every sixteenth
// element, from element l on. The sums of the lanes are added up as in ReduceFour (vec_portable.h).
BATON_FUSED void F32Order(const float* x, const float* w, size_t k, float* out) {
  float lanes[16][kColumns];
  for (int l = 0; l < 16; ++l) {
    float sums[kColumns] = {};
    for (size_t i = l; i < k; i += 16) {
      for (int c = 0; c < kColumns; ++c) {
        sums[c] = __builtin_fmaf(x[i], w[i * kColumns + c], sums[c]);
      }
    }
    std::memcpy(lanes[l], sums, sizeof(sums));
  }
  Tree(lanes, out);
}

BATON_FUSED void AmxOrder(const float* x, const float* w, size_t k, float* out) {
  float total[kColumns] = {};
  for (size_t i = 0; i < k; i += 32) {
    float even[kColumns] = {}, odd[kColumns] = {};
    for (size_t j = i; j < i + 32; j += 2) {
      for (int c = 0; c < kColumns; ++c) {
        even[c] = __builtin_fmaf(x[j], w[j * kColumns + c], even[c]);
        odd[c] = __builtin_fmaf(x[j + 1], w[(j + 1) * kColumns + c], odd[c]);
      }
    }
    for (int c = 0; c < kColumns; ++c) total[c] += even[c] + odd[c];
  }
  std::memcpy(out, total, sizeof(total));
}

BATON_FUSED void PairOrder(const float* x, const float* w, size_t k, float* out) {
  float lanes[16][kColumns];
  for (int l = 0; l < 16; ++l) {
    float sums[kColumns] = {};
    for (size_t i = 2 * l; i < k; i += 32) {
      for (const size_t j : {i + 1, i}) {
        for (int c = 0; c < kColumns; ++c) {
          sums[c] = __builtin_fmaf(x[j], w[j * kColumns + c], sums[c]);
        }
      }
    }
    std::memcpy(lanes[l], sums, sizeof(sums));
  }
  Tree(lanes, out);
}

struct Shape {
  int m, k, n;
};

// The operands of a GEMM and its expected results: `sums` without bias and old output, and
// `finished` with both added.
struct Product {
  Shape shape;
  DType type;
  std::vector<float> x, bias, before;
  std::vector<uint16_t> narrow;  // the weights, if they have 16 bits
  std::vector<float> wide;       // the weights as floats
  std::vector<float> sums, finished;
};

Product Make(const Shape& shape, DType type, CpuNumerics numerics) {
  const auto [m, k, n] = shape;
  Product p{.shape = shape, .type = type};
  std::mt19937 random(m * 7 + k * 3 + n);
  // Samples random fractions with three exponents, so that different orders round differently and
  // no value is near a denormal.
  const auto sample = [&random](std::vector<float>* values, size_t count) {
    values->resize(count);
    for (float& value : *values) {
      const uint32_t bits = (random() & 0x807fffff) | (126 + random() % 3) << 23;
      std::memcpy(&value, &bits, sizeof(bits));
    }
  };
  sample(&p.x, static_cast<size_t>(m) * k);
  sample(&p.wide, static_cast<size_t>(n) * k);
  sample(&p.bias, n);
  sample(&p.before, static_cast<size_t>(m) * n);
  if (type != DType::kF32) {
    p.narrow = Narrowed(p.wide, type);
    p.wide = Widened(p.narrow, type);
  }
  const bool rounded = numerics != CpuNumerics::kF32 && type == DType::kBF16;
  const auto order = !rounded ? F32Order : numerics == CpuNumerics::kAmx ? AmxOrder : PairOrder;
  const size_t filled = static_cast<size_t>(k + kWhole - 1) / kWhole * kWhole;
  const auto x = rounded ? Widened(Narrowed(p.x, DType::kBF16), DType::kBF16) : p.x;
  std::vector<float> rows(m * filled, 0.0f), columns(filled * kColumns);
  for (int row = 0; row < m; ++row) {
    std::copy_n(x.begin() + static_cast<size_t>(row) * k, k, rows.begin() + row * filled);
  }
  p.sums.resize(p.before.size());
  for (int n0 = 0; n0 < n; n0 += kColumns) {
    const int count = std::min(kColumns, n - n0);
    std::fill(columns.begin(), columns.end(), 0.0f);
    for (int c = 0; c < count; ++c) {
      for (int i = 0; i < k; ++i) {
        columns[i * kColumns + c] = p.wide[static_cast<size_t>(n0 + c) * k + i];
      }
    }
    for (int row = 0; row < m; ++row) {
      float out[kColumns];
      order(rows.data() + row * filled, columns.data(), filled, out);
      std::copy_n(out, count, p.sums.begin() + static_cast<size_t>(row) * n + n0);
    }
  }
  p.finished = p.sums;
  for (size_t i = 0; i < p.finished.size(); ++i) {
    p.finished[i] = p.before[i] + (p.finished[i] + p.bias[i % n]);
  }
  return p;
}

// Returns the expected results, which are computed once for each shape, type and summation order.
const Product& Expected(const Shape& shape, DType type, CpuNumerics numerics) {
  static auto& made = *new std::map<std::array<int, 5>, Product>;
  auto& product = made[{shape.m, shape.k, shape.n, static_cast<int>(type),
                        type == DType::kBF16 ? static_cast<int>(numerics) : 0}];
  if (product.x.empty()) product = Make(shape, type, numerics);
  return product;
}

// Holds `values` [rows][cols] with `stride` elements from row to row, and NaN between the rows.
struct Rows {
  Rows(const std::vector<float>& values, int rows, int cols, int stride, Guarded::Side side)
      : memory((static_cast<size_t>(rows - 1) * stride + cols) * sizeof(float), side),
        tensor{memory.data(), rows, cols, stride} {
    for (int row = 0; row < rows; ++row) {
      std::copy_n(values.begin() + static_cast<size_t>(row) * cols, cols, At(row));
    }
  }
  float* At(int row) const {
    return static_cast<float*>(tensor.data) + static_cast<size_t>(row) * tensor.stride;
  }
  Guarded memory;
  Tensor tensor;
};

testing::AssertionResult Holds(const Rows& got, const std::vector<float>& expected) {
  const auto [data, rows, cols, stride] = got.tensor;
  for (int row = 0; row < rows; ++row) {
    const float* want = expected.data() + static_cast<size_t>(row) * cols;
    for (int col = 0; col < cols; ++col) {
      if (std::memcmp(got.At(row) + col, want + col, sizeof(float)) != 0) {
        return testing::AssertionFailure() << "row " << row << ", output " << col << ": "
                                           << got.At(row)[col] << ", expected " << want[col];
      }
    }
    for (int col = cols; row + 1 < rows && col < stride; ++col) {
      uint32_t bits;
      std::memcpy(&bits, got.At(row) + col, sizeof(bits));
      if (bits != 0xffffffff) {
        return testing::AssertionFailure() << "written behind row " << row;
      }
    }
  }
  return testing::AssertionSuccess();
}

// A summation order and the instruction set that computes it.
struct GemmPath {
  const char* name;
  Isa isa;
  CpuNumerics numerics;
};
class LargeGemmsTest : public testing::TestWithParam<GemmPath> {};
INSTANTIATE_TEST_SUITE_P(
    Cpu, LargeGemmsTest,
    testing::Values(GemmPath{"portable", Isa::kPortable, CpuNumerics::kF32},
                    GemmPath{"avx2", Isa::kAvx2, CpuNumerics::kF32},
                    GemmPath{"avx512", Isa::kAvx512, CpuNumerics::kF32},
                    GemmPath{"amx_by_portable", Isa::kPortable, CpuNumerics::kAmx},
                    GemmPath{"amx_by_avx2", Isa::kAvx2, CpuNumerics::kAmx},
                    GemmPath{"amx_by_avx512", Isa::kAvx512, CpuNumerics::kAmx},
                    GemmPath{"amx_by_tiles", Isa::kAmx, CpuNumerics::kAmx},
                    GemmPath{"avx512_bf16_by_portable", Isa::kPortable, CpuNumerics::kAvx512Bf16},
                    GemmPath{"avx512_bf16", Isa::kAuto, CpuNumerics::kAvx512Bf16}),
    [](const auto& info) { return info.param.name; });

TEST_P(LargeGemmsTest, HaveTheBitsOfTheirOrderAndTouchNothingElse) {
  const auto [name, isa, numerics] = GetParam();
  if (const auto avx2 = CreateCpuBackend({1, Isa::kAvx2}); !avx2.ok()) {
    GTEST_SKIP() << avx2.status().message();  // the reference functions need AVX2 and FMA
  }
  // Shapes are {m, k, n}. The kernels cut m into blocks (96, 512), k into parts (512, 2048) and n
  // into groups (24, 32, 128). The first shape exceeds all of these sizes and is a multiple of
  // none. In the second shape, k is a multiple of 512 and 2048, and n of 32. The last two shapes
  // have 7 rows and 1 row.
  std::vector<Shape> shapes = {{600, 4133, 300}, {530, 4096, 160}, {97, 2049, 131},
                               {33, 6177, 65},   {7, 4133, 300},   {1, 2049, 300}};
  if (isa == Isa::kPortable) shapes = {{101, 2049, 27}, {7, 4133, 37}, {1, 2049, 300}};
  std::vector<DType> types = {DType::kBF16};
  if (numerics == CpuNumerics::kF32) types = {DType::kBF16, DType::kF16, DType::kF32};
  for (const int threads : {1, 3}) {
    const auto backend = CreateCpuBackend({threads, isa, numerics});
    if (!backend.ok()) GTEST_SKIP() << backend.status().message();
    for (const DType type : types) {
      for (const Shape& shape : shapes) {
        const auto [m, k, n] = shape;
        if (m > 500 && type != DType::kBF16) continue;  // types differ only in how they are widened
        const Product& p = Expected(shape, type, numerics);
        const Guarded weights = type == DType::kF32 ? Guarded(p.wide, Guarded::kBack)
                                                    : Guarded(p.narrow, Guarded::kBack);
        const Guarded bias(p.bias, Guarded::kBack);
        const Matrix weight{weights.data(), FormatOf(type), n, k};
        for (const auto side : {Guarded::kFront, Guarded::kBack}) {
          SCOPED_TRACE(testing::Message()
                       << m << " x " << k << " x " << n << ", " << DTypeName(type) << ", "
                       << threads << " threads, side " << side);
          const bool back = side == Guarded::kBack;
          const Rows in(p.x, m, k, back ? k : k + 3, side);
          const Rows out(p.before, m, n, back ? n : n + 5, side);
          ASSERT_TRUE(
              (*backend)->Gemm({.in = in.tensor, .weight = weight, .out = out.tensor}).ok());
          ASSERT_TRUE(Holds(out, p.sums));
          const Rows more(p.before, m, n, back ? n : n + 5, side);
          ASSERT_TRUE((*backend)
                          ->Gemm({.in = in.tensor,
                                  .weight = weight,
                                  .bias = {bias.data(), WeightFormat::kF32, 1, n},
                                  .accumulate = true,
                                  .out = more.tensor})
                          .ok());
          ASSERT_TRUE(Holds(more, p.finished));
          // The backend's operation Logits multiplies some rows of this GEMM's input with this
          // GEMM's weights, so for these rows it must give the sums that the GEMM gave.
          const std::vector<int> rows = {m - 1, 0, m / 2};
          std::vector<float> chosen;
          for (const int row : rows) {
            chosen.insert(chosen.end(), p.sums.begin() + row * n, p.sums.begin() + (row + 1) * n);
          }
          const Rows logits(std::vector<float>(3 * n), 3, n, n, side);
          ASSERT_TRUE((*backend)
                          ->Logits({.in = in.tensor,
                                    .head = weight,
                                    .rows = rows,
                                    .out = absl::MakeSpan(logits.At(0), 3 * n)})
                          .ok());
          ASSERT_TRUE(Holds(logits, chosen));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
