#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 256 values in 210 bytes: 128 bytes with the four lower bits of the values; 64 bytes with
// the two higher ones; 16 signed bytes, the scale of each 16 values; f16 scale of the scales. All
// values plus 32. Each half of the block has four groups: groups 0 and 2 share 32 bytes of lower
// bits, and so do groups 1 and 3; all four share 32 bytes of higher bits.
void UnpackQ6_K(const std::byte* block, WeightGroup* groups) {
  const float scale = ReadHalf(block + 208);
  for (int g = 0; g < 8; ++g) {
    const int half = g / 4, quarter = g % 4;
    const std::byte* low_bits = block + 64 * half + 32 * (quarter % 2);
    const std::byte* high_bits = block + 128 + 32 * half;
    const std::byte* scales = block + 192 + 2 * g;
    groups[g] = {.scale = scale,
                 .factor = {static_cast<int8_t>(scales[0]), static_cast<int8_t>(scales[1])}};
    for (int i = 0; i < WeightGroup::kValues; ++i) {
      const int pair = static_cast<int>(low_bits[i]);
      const int low = quarter < 2 ? pair & 15 : pair >> 4;
      const int high = static_cast<int>(high_bits[i]) >> 2 * quarter & 3;
      groups[g].quant[i] = static_cast<int8_t>((low | high << 4) - 32);
    }
  }
}

}  // namespace baton
