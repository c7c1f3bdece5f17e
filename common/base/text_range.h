#pragma once

#include <cstddef>

namespace baton {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
};

}  // namespace baton
