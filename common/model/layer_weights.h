#pragma once

#include "kernels/backend/backend.h"

namespace baton {

// Weights of one decoder layer, as the backend holds them. Biases and head norms that the model
// lacks have no data.
struct LayerWeights {
  Matrix attention_norm, mlp_norm;
  Matrix q, k, v, o, gate, up, down;
  Matrix q_norm, k_norm;  // one row of head_dim each, used for every head
  Matrix q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
};

}  // namespace baton
