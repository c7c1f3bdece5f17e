#include "kernels/conformance/conformance_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace baton {
namespace {

// Returns the nearest value of a 16-bit type. It is found by search, which is slow but obviously
// right.
uint16_t ToBits16(DType type, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return 0xffff;
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

}  // namespace

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

std::vector<float> RoundTo(DType type, const std::vector<float>& values) {
  if (type == DType::kF32) return values;
  const auto bytes = Encode(type, values);
  std::vector<float> out;
  for (size_t i = 0; i < bytes.size(); i += DTypeBytes(type)) {
    out.push_back(FromBits(type, &bytes[i]));
  }
  return out;
}

std::vector<float> Bench::Normal(size_t n, float deviation) {
  std::normal_distribution<float> sample(0, deviation);
  std::vector<float> out(n);
  for (float& x : out) x = sample(random_);
  return out;
}

HostMatrix Bench::Weight(DType type, int rows, int cols, float deviation) {
  HostMatrix m{rows, cols, {}, {}};
  m.values = RoundTo(type, Normal(static_cast<size_t>(rows) * cols, deviation));
  const auto bytes = Encode(type, m.values);
  if (param_.bf16_tensors) m.values = RoundTo(DType::kBF16, m.values);
  // Weights in files may have any alignment, so these weights begin at an odd address. There is NaN
  // before and after them.
  constexpr size_t kMargin = 64;
  std::vector<std::byte> padded(bytes.size() + 2 * kMargin, std::byte{0xff});
  std::copy(bytes.begin(), bytes.end(), padded.begin() + kMargin + 1);
  weights_.push_back(std::move(padded));
  m.device =
      backend_->LoadWeight({weights_.back().data() + kMargin + 1, FormatOf(type), rows, cols})
          .value();
  return m;
}

HostTensor Bench::Activation(int rows, int cols, const std::vector<float>& values) {
  HostTensor t{rows, cols, {}, {}};
  const int before = Pick(0, 5), stride = before + cols + Pick(0, 5);
  const Tensor whole = backend_->Allocate(rows, stride).value();
  const auto encoded = Encode(type(), values);
  const size_t size = DTypeBytes(type()), row_bytes = cols * size;
  std::vector<std::byte> padded(static_cast<size_t>(rows) * whole.stride * size, std::byte{0xff});
  for (int r = 0; r < rows; ++r) {
    std::copy_n(encoded.begin() + r * row_bytes, row_bytes,
                padded.begin() + (static_cast<size_t>(r) * whole.stride + before) * size);
  }
  for (size_t i = 0; i < encoded.size(); i += size) {
    t.values.push_back(FromBits(type(), &encoded[i]));
  }
  if (!padded.empty()) param_.upload(whole.data, padded.data(), padded.size());
  t.device = Cols(whole, before, cols);
  return t;
}

std::vector<float> Bench::Read(const Tensor& t) {
  EXPECT_TRUE(backend_->Synchronize().ok());
  const size_t size = DTypeBytes(type());
  std::vector<std::byte> bytes(static_cast<size_t>(t.rows) * t.cols * size);
  for (int r = 0; r < t.rows; ++r) {
    param_.download(bytes.data() + static_cast<size_t>(r) * t.cols * size, Element(t, r, 0),
                    t.cols * size);
  }
  std::vector<float> out;
  for (size_t i = 0; i < bytes.size(); i += size) out.push_back(FromBits(type(), &bytes[i]));
  return out;
}

std::byte* Bench::Element(const Tensor& t, int row, int col) const {
  return static_cast<std::byte*>(t.data) +
         (static_cast<size_t>(row) * t.stride + col) * DTypeBytes(type());
}

Tensor Bench::Rows(const Tensor& t, int first, int count) const {
  return {Element(t, first, 0), count, t.cols, t.stride};
}

Tensor Bench::Cols(const Tensor& t, int first, int count) const {
  return {Element(t, 0, first), t.rows, count, t.stride};
}

std::shared_ptr<std::byte> Bench::Memory(const std::vector<std::byte>& bytes) {
  auto memory = param_.allocate(bytes.size());
  param_.upload(memory.get(), bytes.data(), bytes.size());
  return memory;
}

std::vector<std::byte> Bench::Bytes(const std::byte* memory, size_t size) {
  EXPECT_TRUE(backend_->Synchronize().ok());
  std::vector<std::byte> out(size);
  param_.download(out.data(), memory, size);
  return out;
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

}  // namespace baton
