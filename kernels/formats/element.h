#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/dtype.h"

namespace baton {

// Reads or writes one value of any element type in host memory, at any alignment. Writing rounds to
// nearest even. A value beyond the type's largest one becomes infinity, and NaN stays NaN.
float ReadElement(DType type, const void* from);
void WriteElement(DType type, float value, void* to);

// Converts `n` values from one type to another. `from` and `to` may not overlap.
void ConvertElements(DType from_type, const void* from, DType to_type, void* to, size_t n);

}  // namespace baton
