#pragma once

#include <string>

#include "kernels/backend/dtype.h"

namespace baton {

// A folder with a model that is larger than the demo model and of odd sizes: Qwen3, 5 layers of
// 222, 9 heads over 3 of 26, a vocabulary of 3,001, full layers and windows of 300 in turn; 4.0
// million random weights of that type (kF32 or kBF16), norms in float. With `dynamic_rope` the
// rotary table changes with the length: at 256 tokens or the prompt's, and at every doubling.
// Written when it is first asked for, removed when the process ends.
std::string LongModelFolder(DType type, bool dynamic_rope = false);

}  // namespace baton
