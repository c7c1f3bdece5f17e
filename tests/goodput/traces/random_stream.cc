#include "tests/goodput/traces/random_stream.h"

#include <cmath>

namespace baton {
namespace {

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, Purpose purpose, uint64_t index)
    : state_(Mix(Mix(Mix(seed + 0x9e3779b97f4a7c15u) + purpose) + index)) {}

uint64_t RandomStream::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  return Mix(state_);
}

uint32_t RandomStream::Below(uint32_t n) {
  return static_cast<uint32_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
}

double RandomStream::Uniform() { return static_cast<double>((Next() >> 11) + 1) * 0x1p-53; }

double RandomStream::Exponential() { return -std::log(Uniform()); }

double RandomStream::Normal() {
  const double radius = std::sqrt(2 * Exponential());
  return radius * std::cos(2 * M_PI * Uniform());
}

double RandomStream::Gamma(double shape) {
  if (shape < 1) return Gamma(shape + 1) * std::pow(Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(Uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace baton
