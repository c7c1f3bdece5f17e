#pragma once

#include <string>

#include "kernels/formats/dtype.h"

namespace baton {

// Returns a folder with a model that is larger than the demo model and has odd sizes. It is a Qwen3
// model with 5 layers of width 222, 9 query heads over 3 KV heads of size 26, and a vocabulary of
// 3,001. Layers with full attention alternate with layers that have a window of 300. Its 4.0
// million random weights have type `type` (kF32 or kBF16); norms are in float. With `dynamic_rope`
// the rotary table changes when a sequence grows beyond 256 tokens (or beyond its prompt, if the
// prompt is longer), and each time this length doubles. The folder is written at the first call and
// removed when the process ends.
std::string LongModelFolder(DType type, bool dynamic_rope = false);

}  // namespace baton
