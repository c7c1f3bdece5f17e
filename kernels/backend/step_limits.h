#pragma once

#include <vector>

#include "kernels/backend/kv_layout.h"

namespace baton {

// How large the steps of a backend can become, for it to take their memory beforehand.
struct StepLimits {
  int rows = 0;        // of a step
  int sequences = 0;   // of a step
  int logit_rows = 0;  // whose logits are wanted at once
  int context = 0;     // tokens of a sequence
  // Of the model.
  int hidden = 0, heads = 0, vocab = 0;
  std::vector<int> windows = {0};  // of layers, in any number; 0: they see all
  KvLayout layout;
};

}  // namespace baton
