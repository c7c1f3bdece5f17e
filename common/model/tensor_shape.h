#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

// A tensor that the model's checkpoints contain.
struct TensorShape {
  enum class Kind { kMatrix, kNorm, kBias };  // norms and biases have one dimension
  std::string name;
  Kind kind = Kind::kMatrix;
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  // Number of rows of each weight that is cut from this tensor, in order. There is one weight,
  // except where a family fuses projections.
  std::vector<int64_t> weight_rows;

  int64_t elements() const { return rows * cols; }
  std::vector<int64_t> Dimensions() const {
    return kind == Kind::kMatrix ? std::vector<int64_t>{rows, cols} : std::vector<int64_t>{cols};
  }
};

}  // namespace baton
