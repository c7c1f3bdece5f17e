#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton {

// Says how one family of decoders reads config.json: the defaults of transformers for missing keys,
// and the keys that the family uses. architecture.h has the weights of the family. A new family
// needs an entry in both places. If a feature of the family can't be expressed in either, add a
// member here.
struct ModelFamily {
  enum class Windows {
    kNone,        // every layer sees every token
    kEveryLayer,  // every layer sees `sliding_window` tokens
    // If `use_sliding_window` is set: layers from number `max_window_layers` on, or the layers that
    // `layer_types` marks, see `sliding_window` tokens.
    kLastLayers
  };

  absl::string_view architecture;  // name in `architectures` of config.json
  absl::string_view model_type;    // value of `model_type`
  int kv_heads = 0;                // if the key is missing; 0: as many as query heads
  int head_dim = 0;                // if the key is missing; 0: hidden_size / num_attention_heads
  double rms_epsilon = 1e-6;
  bool attention_bias = false;  // true if config.json says whether projections have biases
  bool mlp_bias = false;
  Windows windows = Windows::kNone;
  int window = 0;  // window in tokens if the key is missing
  // Set for Phi-3. It rotates only the fraction `partial_rotary_factor` of each head, and has the
  // original context of its rope scaling outside of rope_scaling.
  bool partial_rope = false;
  int original_context = 0;  // if the key is missing; 0: max_position_embeddings
};

absl::Span<const ModelFamily> ModelFamilies();

}  // namespace baton
