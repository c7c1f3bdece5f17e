#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/formats/weight_format.h"

namespace baton {

// 32 consecutive values of a quantised row, unpacked. Every format with blocks can be written like
// this, so it is enough that a format's file unpacks its blocks. Value i is
//
//   (scale * factor[i / 16]) * quant[i] + offset_scale * offset_factor,
//
// where only formats with `has_offset` have the second term.
struct WeightGroup {
  static constexpr int kValues = 32;
  static constexpr int kHalf = 16;

  float scale = 0;         // an f16 of the file
  int factor[2] = {1, 1};  // -128 to 127
  int8_t quant[kValues] = {};
  bool has_offset = false;
  float offset_scale = 0;  // an f16 of the file, or its negative
  int offset_factor = 1;   // 0 to 63
};

// Returns the value of the f16 at `from`, in any alignment.
float ReadHalf(const std::byte* from);

// Unpacks the beginning of a row: as many groups as `groups` has, which must be whole blocks. The
// format must be quantised. `row` may have any alignment.
void UnpackGroups(WeightFormat format, const std::byte* row, absl::Span<WeightGroup> groups);

// Each function below unpacks one block. `groups` has room for its values: one group for blocks of
// 32 values, and eight for blocks of 256.
void UnpackQ4_0(const std::byte* block, WeightGroup* groups);
void UnpackQ4_1(const std::byte* block, WeightGroup* groups);
void UnpackQ5_0(const std::byte* block, WeightGroup* groups);
void UnpackQ5_1(const std::byte* block, WeightGroup* groups);
void UnpackQ8_0(const std::byte* block, WeightGroup* groups);
void UnpackQ4_K(const std::byte* block, WeightGroup* groups);
void UnpackQ5_K(const std::byte* block, WeightGroup* groups);
void UnpackQ6_K(const std::byte* block, WeightGroup* groups);

}  // namespace baton
