#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend/dtype.h"

namespace baton {

// Values of any element type in host memory, at any alignment. Rounding is to nearest even; what is
// beyond a type's largest value becomes infinite, and NaN stays NaN.
float ReadElement(DType type, const void* from);
void WriteElement(DType type, float value, void* to);

// `n` values of one type as those of another. The runs may not overlap.
void ConvertElements(DType from_type, const void* from, DType to_type, void* to, size_t n);

}  // namespace baton
