#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 32 values in 20 bytes: f16 scale; f16 offset; 16 bytes, of which byte i has value i in
// its lower four bits and value i + 16 in its upper ones.
void UnpackQ4_1(const std::byte* block, WeightGroup* groups) {
  WeightGroup& group = groups[0];
  group = {.scale = ReadHalf(block), .has_offset = true, .offset_scale = ReadHalf(block + 2)};
  for (int i = 0; i < WeightGroup::kHalf; ++i) {
    const int pair = static_cast<int>(block[4 + i]);
    group.quant[i] = static_cast<int8_t>(pair & 15);
    group.quant[i + WeightGroup::kHalf] = static_cast<int8_t>(pair >> 4);
  }
}

}  // namespace baton
