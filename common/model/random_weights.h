#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/model.h"

namespace baton {

// Weights that follow from a seed, for measurements and tests of models that nobody has to load:
// uniform, so scaled that every projection of a normalised row is about as large as the row, and
// activations stay finite in any type. Norms lie around 1, biases around 0. Element i of a tensor
// is a function of seed, name and i alone, in integers and exact products: the same on every
// machine, in whatever pieces it is asked for.
class RandomWeights {
 public:
  static constexpr DType kType = DType::kBF16;

  explicit RandomWeights(uint64_t seed) : seed_(seed) {}
  uint64_t seed() const { return seed_; }

  // Elements `first` and on of `tensor`, row by row; bf16.
  void Fill(const TensorShape& tensor, int64_t first, absl::Span<uint16_t> out) const;

 private:
  const uint64_t seed_;
};

}  // namespace baton
