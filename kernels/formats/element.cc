#include "kernels/formats/element.h"

#include <cstring>

namespace baton {
namespace {

// Each struct below converts between float and the bits of one element type. In Float, the bits are
// the float itself.
struct Float {
  using Bits = float;
  static float Wide(float x) { return x; }
  static float Narrow(float x) { return x; }
};

// Clang, with which tests/fuzz is built, has no _Float16 before version 15.
#ifdef __clang__
using Half = __fp16;
#else
using Half = _Float16;
#endif

struct Float16 {
  using Bits = uint16_t;
  static float Wide(uint16_t bits) {
    Half x;
    std::memcpy(&x, &bits, sizeof(x));
    return static_cast<float>(x);
  }
  static uint16_t Narrow(float wide) {
    const Half x = static_cast<Half>(wide);
    uint16_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
  }
};

struct Bfloat16 {
  using Bits = uint16_t;
  static float Wide(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, sizeof(x));
    return x;
  }
  static uint16_t Narrow(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    // Sets the quiet bit, which also keeps a NaN from becoming infinity.
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

template <typename From, typename To>
void Convert(const void* from, void* to, size_t n) {
  const char* in = static_cast<const char*>(from);
  char* out = static_cast<char*>(to);
  for (size_t i = 0; i < n; ++i) {
    typename From::Bits x;
    std::memcpy(&x, in + i * sizeof(x), sizeof(x));
    const typename To::Bits y = To::Narrow(From::Wide(x));
    std::memcpy(out + i * sizeof(y), &y, sizeof(y));
  }
}

template <typename From>
void ConvertFrom(const void* from, DType to_type, void* to, size_t n) {
  switch (to_type) {
    case DType::kF32:
      return Convert<From, Float>(from, to, n);
    case DType::kF16:
      return Convert<From, Float16>(from, to, n);
    case DType::kBF16:
      return Convert<From, Bfloat16>(from, to, n);
  }
}

}  // namespace

float ReadElement(DType type, const void* from) {
  float value;
  ConvertElements(type, from, DType::kF32, &value, 1);
  return value;
}

void WriteElement(DType type, float value, void* to) {
  ConvertElements(DType::kF32, &value, type, to, 1);
}

void ConvertElements(DType from_type, const void* from, DType to_type, void* to, size_t n) {
  if (from_type == to_type) {
    std::memcpy(to, from, n * DTypeBytes(from_type));
    return;
  }
  switch (from_type) {
    case DType::kF32:
      return ConvertFrom<Float>(from, to_type, to, n);
    case DType::kF16:
      return ConvertFrom<Float16>(from, to_type, to, n);
    case DType::kBF16:
      return ConvertFrom<Bfloat16>(from, to_type, to, n);
  }
}

}  // namespace baton
