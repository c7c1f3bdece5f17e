#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/tensor_shape.h"
#include "kernels/formats/dtype.h"

namespace baton {

// Makes weights from a seed, so that models can be measured and tested without their files. Matrix
// values are uniform. They are scaled so that every projection of a normalised row is about as
// large as the row, and activations stay finite in any type. Norm weights lie around 1, biases
// around 0. Element i of a tensor depends only on seed, tensor name and i, and is computed with
// integers and exact products. So it is the same on every machine, no matter which part of a tensor
// is requested.
class RandomWeights {
 public:
  static constexpr DType kType = DType::kBF16;

  explicit RandomWeights(uint64_t seed) : seed_(seed) {}
  uint64_t seed() const { return seed_; }

  // Fills `out` with elements of `tensor` in bf16, beginning with element number `first` in
  // row-major order.
  void Fill(const TensorShape& tensor, int64_t first, absl::Span<uint16_t> out) const;

 private:
  const uint64_t seed_;
};

}  // namespace baton
