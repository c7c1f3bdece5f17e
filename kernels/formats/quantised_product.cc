#include "kernels/formats/quantised_product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr float kLargest = 127;

ActivationGroup Quantise(absl::Span<const float> in) {
  ActivationGroup group;
  float largest = 0;
  for (const float x : in) {
    if (!std::isfinite(x)) {
      group.scale = std::numeric_limits<float>::quiet_NaN();
      return group;
    }
    largest = std::max(largest, std::fabs(x));
  }
  group.scale = largest / kLargest;
  if (group.scale == 0) return group;
  for (size_t i = 0; i < in.size(); ++i) {
    // A quotient is larger only where the scale has lost bits because it is so small.
    const float rounded = std::nearbyint(in[i] / group.scale);
    group.quant[i] = static_cast<int8_t>(std::clamp(rounded, -kLargest, kLargest));
    group.sum += group.quant[i];
  }
  return group;
}

int HalfProduct(const int8_t* weights, const int8_t* x) {
  int sum = 0;
  for (int i = 0; i < WeightGroup::kHalf; ++i) sum += weights[i] * x[i];
  return sum;
}

}  // namespace

void QuantiseActivations(absl::Span<const float> in, absl::Span<ActivationGroup> out) {
  constexpr size_t kValues = WeightGroup::kValues;
  BATON_CHECK(out.size() == (in.size() + kValues - 1) / kValues)
      << in.size() << " values in " << out.size() << " groups";
  for (size_t g = 0; g < out.size(); ++g) out[g] = Quantise(in.subspan(g * kValues, kValues));
}

float QuantisedProduct(absl::Span<const WeightGroup> weights, absl::Span<const ActivationGroup> x) {
  BATON_CHECK(weights.size() == x.size()) << weights.size() << " and " << x.size() << " groups";
  constexpr int kHalf = WeightGroup::kHalf;
  float sum = 0;
  for (size_t g = 0; g < weights.size(); ++g) {
    const WeightGroup& w = weights[g];
    const int product = w.factor[0] * HalfProduct(w.quant, x[g].quant) +
                        w.factor[1] * HalfProduct(w.quant + kHalf, x[g].quant + kHalf);
    sum = std::fma(w.scale * x[g].scale, static_cast<float>(product), sum);
    if (!w.has_offset) continue;
    sum =
        std::fma(w.offset_scale * x[g].scale, static_cast<float>(w.offset_factor * x[g].sum), sum);
  }
  return sum;
}

}  // namespace baton
