#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend/backend.h"
#include "kernels/conformance/backend_conformance.h"

namespace baton {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Max relative error when a value is rounded to `type`: half of a unit in the last place.
double Rounding(DType type);
float FromBits(DType type, const std::byte* p);
// Encode returns the values as elements of `type`, RoundTo as floats. Both round each value to the
// nearest one of `type`, ties to even.
std::vector<std::byte> Encode(DType type, const std::vector<float>& values);
std::vector<float> RoundTo(DType type, const std::vector<float>& values);

struct HostMatrix {
  int rows, cols;
  std::vector<float> values;  // after rounding to the weight's type and to the backend's
  Matrix device;
  float operator()(int r, int c) const { return values[static_cast<size_t>(r) * cols + c]; }
};

struct HostTensor {
  int rows, cols;
  std::vector<float> values;  // after rounding to the backend's type
  Tensor device;
  float operator()(int r, int c) const { return values[static_cast<size_t>(r) * cols + c]; }
};

// A backend, and the tensors and memory of one test.
class Bench {
 public:
  Bench(const ConformanceParam& param, int threads, uint32_t seed)
      : param_(param), random_(seed), backend_(param.create(threads).value()) {}

  Backend& backend() { return *backend_; }
  std::mt19937& random() { return random_; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::vector<float> Normal(size_t n, float deviation = 1.0f);

  // Element type of activations.
  DType type() const { return param_.bf16_tensors ? DType::kBF16 : DType::kF32; }
  // Returns the max error of rounding `result` to the activations' type. Returns 0 for float,
  // because the tolerance of the arithmetic includes this error already.
  double Slack(double result) const {
    return param_.bf16_tensors ? std::fabs(result) * Rounding(DType::kBF16) : 0;
  }

  HostMatrix Weight(DType type, int rows, int cols, float deviation = 1.0f);
  // Creates a tensor that is a view into a wider allocation. The memory around the view is NaN.
  HostTensor Activation(int rows, int cols, const std::vector<float>& values);
  HostTensor Activation(int rows, int cols) {
    return Activation(rows, cols, Normal(static_cast<size_t>(rows) * cols));
  }
  HostTensor Output(int rows, int cols) {
    return Activation(rows, cols, std::vector<float>(static_cast<size_t>(rows) * cols, kNan));
  }
  std::vector<float> Read(const Tensor& t);
  // Rows returns a view of `count` rows of `t`, Cols a view of `count` columns. Both begin at
  // `first`.
  Tensor Rows(const Tensor& t, int first, int count) const;
  Tensor Cols(const Tensor& t, int first, int count) const;

  std::shared_ptr<std::byte> Memory(const std::vector<std::byte>& bytes);
  std::vector<std::byte> Bytes(const std::byte* memory, size_t size);

 private:
  std::byte* Element(const Tensor& t, int row, int col) const;

  const ConformanceParam& param_;
  std::mt19937 random_;
  std::vector<std::vector<std::byte>> weights_;
  std::unique_ptr<Backend> backend_;
};

testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);
// Succeeds if each value of `got` is within its `tolerance` of the expected one. There is one
// tolerance for each value.
testing::AssertionResult Near(const std::vector<float>& got, const std::vector<double>& expected,
                              const std::vector<double>& tolerance);

}  // namespace baton
