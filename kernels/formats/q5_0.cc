#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 32 values in 22 bytes: f16 scale; 32 bits, of which bit i is the highest bit of value i;
// 16 bytes with the four lower bits, as in q4_0. All values plus 16.
void UnpackQ5_0(const std::byte* block, WeightGroup* groups) {
  WeightGroup& group = groups[0];
  group = {.scale = ReadHalf(block)};
  for (int i = 0; i < WeightGroup::kValues; ++i) {
    const int pair = static_cast<int>(block[6 + i % WeightGroup::kHalf]);
    const int low = i < WeightGroup::kHalf ? pair & 15 : pair >> 4;
    const int high = static_cast<int>(block[2 + i / 8]) >> i % 8 & 1;
    group.quant[i] = static_cast<int8_t>((low | high << 4) - 16);
  }
}

}  // namespace baton
