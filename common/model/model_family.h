#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton {

// How one family of decoders reads config.json: what transformers takes for granted where a key is
// missing, and which keys mean something at all. What weights the family has: architecture.h. A new
// family is an entry in both, and what neither has a word for is a new member here.
struct ModelFamily {
  enum class Windows {
    kNone,        // every layer sees every token
    kEveryLayer,  // `sliding_window` tokens
    kLastLayers   // so from `max_window_layers` on, or by `layer_types`, if `use_sliding_window`
  };

  absl::string_view architecture;  // in `architectures`
  int kv_heads = 0;                // without the key; 0 for as many as query heads
  int head_dim = 0;                // without the key; 0 for hidden_size / num_attention_heads
  double rms_epsilon = 1e-6;
  bool attention_bias = false;  // whether config.json decides on biases of the projections
  bool mlp_bias = false;
  Windows windows = Windows::kNone;
  int window = 0;  // without the key
  // Phi-3: rotates the first `partial_rotary_factor` of each head, and scales from an original
  // context that stands outside of rope_scaling.
  bool partial_rope = false;
  int original_context = 0;  // without the key; 0 for max_position_embeddings
};

absl::Span<const ModelFamily> ModelFamilies();

}  // namespace baton
