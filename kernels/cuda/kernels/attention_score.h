#pragma once

// From q . k to what softmax takes, in powers of two. Included by kernels alone.

#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/code/device_code.h"

namespace baton::BATON_DEVICE_NAMESPACE {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kInfinity = __builtin_huge_valf();

class ScoreScale {
 public:
  BATON_DEVICE ScoreScale(float scale, float soft_cap)
      : capped_(soft_cap > 0),
        in_(capped_ ? scale / soft_cap * (2 * kLog2E) : scale * kLog2E),
        out_(soft_cap * kLog2E) {}

  // Scaled, which is all there is to it unless capped().
  BATON_DEVICE float Of(float dot) const { return Mul(dot, in_); }
  // Of a scaled score: tanh(x) = 1 - 2 / (exp(2 x) + 1), which keeps its ends.
  BATON_DEVICE float Capped(float score) const {
    return Mul(out_, 1.0f - 2.0f / (Exp2(score) + 1.0f));
  }
  BATON_DEVICE bool capped() const { return capped_; }

 private:
  const bool capped_;
  const float in_, out_;
};

}  // namespace baton::BATON_DEVICE_NAMESPACE
