#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/formats/weight_group.h"

namespace baton {

// The definition of a product of quantised weights with quantised activations, and its plain
// implementation. Faster kernels give the same bits. A group of 32 activations is rounded to
//
//   scale = max |x| / 127,   quant[i] = x[i] / scale, rounded to the nearest integer, ties to even.
//
// A product goes through the groups in order, from a sum of 0. In each group
//
//   sum = fma(weight.scale * x.scale, p, sum), with
//     p = factor[0] * sum of quant * x.quant in the first half + factor[1] * the same in the second
//
// and if the format has offsets
//
//   sum = fma(weight.offset_scale * x.scale, weight.offset_factor * sum of x.quant, sum).
//
// p and the other integers are exact, and floats hold them exactly, so their order does not matter.
// A result depends only on its row of activations and its row of weights.
struct ActivationGroup {
  // 0 if no activation of the group is as large as 127 times the least float above 0. NaN if one is
  // infinite or no number.
  float scale = 0;
  int8_t quant[WeightGroup::kValues] = {};  // -127 to 127
  int sum = 0;                              // the sum of `quant`
};

// Rounds a row of activations. The last group of `out` is filled up with zeros: `out` has as many
// groups as `in` needs, rounded up.
void QuantiseActivations(absl::Span<const float> in, absl::Span<ActivationGroup> out);

// Returns the product of a row of weights with a row of activations, of equally many groups.
float QuantisedProduct(absl::Span<const WeightGroup> weights, absl::Span<const ActivationGroup> x);

}  // namespace baton
