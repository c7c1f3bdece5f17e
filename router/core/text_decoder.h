#pragma once

#include <functional>
#include <string>

#include "common/base/types.h"

namespace baton {

// Turns the token ids of one answer into text, one id at a time. Both functions return whole
// characters only.
struct TextDecoder {
  std::function<std::string(TokenId)> next;
  // Called at the end of the answer. Returns the rest of the text, with U+FFFD for an incomplete
  // character.
  std::function<std::string()> flush;
};

}  // namespace baton
