#pragma once

// Turns a product q . k into an exponent of 2 for softmax. Included by kernels only.

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

  // Scales a product q . k. If capped() is true, the result must be passed to Capped() as well.
  BATON_DEVICE float Of(float dot) const { return Mul(dot, in_); }
  // Caps a scaled score with tanh(x) = 1 - 2 / (exp(2 x) + 1). The result is right even if exp
  // overflows or underflows.
  BATON_DEVICE float Capped(float score) const {
    return Mul(out_, 1.0f - 2.0f / (Exp2(score) + 1.0f));
  }
  BATON_DEVICE bool capped() const { return capped_; }

 private:
  const bool capped_;
  const float in_, out_;
};

}  // namespace baton::BATON_DEVICE_NAMESPACE
