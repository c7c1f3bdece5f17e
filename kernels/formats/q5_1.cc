#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 32 values in 24 bytes: f16 scale; f16 offset; 32 bits, of which bit i is the highest bit
// of value i; 16 bytes with the four lower bits, as in q4_1.
void UnpackQ5_1(const std::byte* block, WeightGroup* groups) {
  WeightGroup& group = groups[0];
  group = {.scale = ReadHalf(block), .has_offset = true, .offset_scale = ReadHalf(block + 2)};
  for (int i = 0; i < WeightGroup::kValues; ++i) {
    const int pair = static_cast<int>(block[8 + i % WeightGroup::kHalf]);
    const int low = i < WeightGroup::kHalf ? pair & 15 : pair >> 4;
    const int high = static_cast<int>(block[4 + i / 8]) >> i % 8 & 1;
    group.quant[i] = static_cast<int8_t>(low | high << 4);
  }
}

}  // namespace baton
