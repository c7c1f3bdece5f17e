#pragma once

#include <vector>

#include "kernels/backend/kv_layout.h"

namespace baton {

// Upper limits for the steps of a backend, given to Backend::Reserve so that it can allocate memory
// for them beforehand.
struct StepLimits {
  int rows = 0;        // max rows of a step
  int sequences = 0;   // max sequences of a step
  int logit_rows = 0;  // max rows of a step whose logits are wanted
  int context = 0;     // max tokens of a sequence
  // Sizes of the model.
  int hidden = 0, heads = 0, vocab = 0;
  // The attention windows of the model's layers, in any order; a window may be listed more than
  // once. 0: no window.
  std::vector<int> windows = {0};
  KvLayout layout;
};

}  // namespace baton
