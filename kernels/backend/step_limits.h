#pragma once

#include <vector>

#include "kernels/backend/kv_layout.h"

namespace baton {

// Upper limits for the steps of a backend, for which the backend can allocate memory beforehand.
struct StepLimits {
  int rows = 0;        // max rows of a step
  int sequences = 0;   // max sequences of a step
  int logit_rows = 0;  // max rows of a step whose logits are wanted
  int context = 0;     // max tokens of a sequence
  // Sizes of the model.
  int hidden = 0, heads = 0, vocab = 0;
  // attention windows of the model's layers, repeated or not; 0: no window
  std::vector<int> windows = {0};
  KvLayout layout;
};

}  // namespace baton
