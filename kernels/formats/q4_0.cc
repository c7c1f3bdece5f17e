#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 32 values in 18 bytes: f16 scale; 16 bytes, of which byte i has value i in its lower
// four bits and value i + 16 in its upper ones, both plus 8.
void UnpackQ4_0(const std::byte* block, WeightGroup* groups) {
  WeightGroup& group = groups[0];
  group = {.scale = ReadHalf(block)};
  for (int i = 0; i < WeightGroup::kHalf; ++i) {
    const int pair = static_cast<int>(block[2 + i]);
    group.quant[i] = static_cast<int8_t>((pair & 15) - 8);
    group.quant[i + WeightGroup::kHalf] = static_cast<int8_t>((pair >> 4) - 8);
  }
}

}  // namespace baton
