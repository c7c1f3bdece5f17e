#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/model.h"

namespace baton {

// Makes weights from a seed, so that models can be measured and tested without their files. Matrix
// values are uniform, and scaled so that every projection of a normalised row is about as large as
// the row and activations stay finite in any type. Norm weights lie around 1, biases around 0.
// Element i of a tensor depends only on seed, tensor name and i, and is computed with integers and
// exact products. So it is the same on every machine, whichever part of a tensor is requested.
class RandomWeights {
 public:
  static constexpr DType kType = DType::kBF16;

  explicit RandomWeights(uint64_t seed) : seed_(seed) {}
  uint64_t seed() const { return seed_; }

  // Fills `out` with the elements of `tensor` from `first` on, row by row, in bf16.
  void Fill(const TensorShape& tensor, int64_t first, absl::Span<uint16_t> out) const;

 private:
  const uint64_t seed_;
};

}  // namespace baton
