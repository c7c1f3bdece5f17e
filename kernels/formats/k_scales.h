#pragma once

#include <cstddef>

namespace baton {

// The scale and the offset of one group of 32 values in a block of q4_k or q5_k, 0 to 63.
struct KScale {
  int scale = 0;
  int offset = 0;
};

// Reads those of group 0 to 7 from the block's 12 bytes. Groups 0 to 3 have six bits each in bytes
// 0 to 3 (scales) and 4 to 7 (offsets). Of groups 4 to 7, bytes 8 to 11 hold the four lower bits of
// both, and the two highest bits of bytes 0 to 7 the rest.
inline KScale ReadKScale(const std::byte* bytes, int group) {
  const auto at = [bytes](int i) { return static_cast<int>(bytes[i]); };
  if (group < 4) return {.scale = at(group) & 63, .offset = at(group + 4) & 63};
  return {.scale = (at(group + 4) & 15) | at(group - 4) >> 6 << 4,
          .offset = at(group + 4) >> 4 | at(group) >> 6 << 4};
}

}  // namespace baton
