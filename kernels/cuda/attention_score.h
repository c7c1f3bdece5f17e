#pragma once

// From q . k to what softmax takes, in powers of two. Included by kernels alone.

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/kernels.h"

namespace baton::BATON_DEVICE_NAMESPACE {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kInfinity = __builtin_huge_valf();

class ScoreScale {
 public:
  explicit BATON_DEVICE ScoreScale(const PagedAttentionParams& params)
      : capped_(BATON_MUTATE("attention: soft cap", params.soft_cap > 0, false)),
        in_(capped_ ? params.scale / params.soft_cap * (2 * kLog2E)
                    : params.scale * BATON_MUTATE("attention: base", kLog2E, 1.0f)),
        out_(params.soft_cap * kLog2E) {}

  BATON_DEVICE float Of(float dot) const {
    const float score = Mul(dot, in_);
    if (!capped_) return score;
    // tanh(x) = 1 - 2 / (exp(2 x) + 1), which keeps its ends.
    return Mul(out_, 1.0f - 2.0f / (Exp2(score) + 1.0f));
  }

 private:
  const bool capped_;
  const float in_, out_;
};

}  // namespace baton::BATON_DEVICE_NAMESPACE
