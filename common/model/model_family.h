#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton {

// Says how one family of decoders reads config.json: the defaults of transformers for missing keys,
// and the keys that have a meaning at all. architecture.h has the weights of the family. A new
// family needs an entry in both places. If neither can express a feature, add a member here.
struct ModelFamily {
  enum class Windows {
    kNone,        // every layer sees every token
    kEveryLayer,  // every layer sees `sliding_window` tokens
    // If `use_sliding_window` is set: layers from `max_window_layers` on, or those in
    // `layer_types`.
    kLastLayers
  };

  absl::string_view architecture;  // name in `architectures`
  int kv_heads = 0;                // default; 0: as many as query heads
  int head_dim = 0;                // default; 0: hidden_size / num_attention_heads
  double rms_epsilon = 1e-6;
  bool attention_bias = false;  // true if config.json decides on biases of the projections
  bool mlp_bias = false;
  Windows windows = Windows::kNone;
  int window = 0;  // default
  // Used by Phi-3, which rotates only the first `partial_rotary_factor` of each head and reads the
  // original context of its scaling from outside of rope_scaling.
  bool partial_rope = false;
  int original_context = 0;  // default; 0: max_position_embeddings
};

absl::Span<const ModelFamily> ModelFamilies();

}  // namespace baton
