#include "kernels/formats/k_scales.h"
#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 256 values in 144 bytes: f16 scale; f16 scale of the offsets, which are subtracted; 12
// bytes of scales and offsets (k_scales.h); 128 bytes, of which each run of 32 has a group in its
// lower four bits and the next group in its upper ones.
void UnpackQ4_K(const std::byte* block, WeightGroup* groups) {
  const std::byte* pairs = block + 16;
  for (int g = 0; g < 8; ++g) {
    const KScale scale = ReadKScale(block + 4, g);
    groups[g] = {.scale = ReadHalf(block),
                 .factor = {scale.scale, scale.scale},
                 .has_offset = true,
                 .offset_scale = -ReadHalf(block + 2),
                 .offset_factor = scale.offset};
    for (int i = 0; i < WeightGroup::kValues; ++i) {
      const int pair = static_cast<int>(pairs[g / 2 * 32 + i]);
      groups[g].quant[i] = static_cast<int8_t>(g % 2 == 0 ? pair & 15 : pair >> 4);
    }
  }
}

}  // namespace baton
