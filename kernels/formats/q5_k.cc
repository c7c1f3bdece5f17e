#include "kernels/formats/k_scales.h"
#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 256 values in 176 bytes: as in q4_k, but behind the 12 bytes of scales there are 32
// bytes more: bit g of byte i is the highest bit of value i of group g.
void UnpackQ5_K(const std::byte* block, WeightGroup* groups) {
  const std::byte* high_bits = block + 16;
  const std::byte* pairs = block + 48;
  for (int g = 0; g < 8; ++g) {
    const KScale scale = ReadKScale(block + 4, g);
    groups[g] = {.scale = ReadHalf(block),
                 .factor = {scale.scale, scale.scale},
                 .has_offset = true,
                 .offset_scale = -ReadHalf(block + 2),
                 .offset_factor = scale.offset};
    for (int i = 0; i < WeightGroup::kValues; ++i) {
      const int pair = static_cast<int>(pairs[g / 2 * 32 + i]);
      const int low = g % 2 == 0 ? pair & 15 : pair >> 4;
      const int high = static_cast<int>(high_bits[i]) >> g & 1;
      groups[g].quant[i] = static_cast<int8_t>(low | high << 4);
    }
  }
}

}  // namespace baton
