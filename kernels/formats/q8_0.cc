#include <cstring>

#include "kernels/formats/weight_group.h"

namespace baton {

// Block of 32 values in 34 bytes: f16 scale; 32 signed bytes.
void UnpackQ8_0(const std::byte* block, WeightGroup* groups) {
  groups[0] = {.scale = ReadHalf(block)};
  std::memcpy(groups[0].quant, block + 2, WeightGroup::kValues);
}

}  // namespace baton
