#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/model.h"
#include "common/model/model_config.h"

namespace baton {

// A size that follows from the configuration.
enum class Extent {
  kOne,           // of a vector, which checkpoints store with one dimension
  kHidden,        //
  kQueries,       // heads * head_dim
  kKeys,          // kv_heads * head_dim
  kIntermediate,  //
  kVocab
};
int SizeOf(Extent extent, const ModelConfig& config);

// One weight of every layer: its name in checkpoints behind the layer's prefix, its shape, where it
// goes, and the switch in the configuration that says whether it is there; nullptr for always.
struct LayerTensor {
  absl::string_view name;
  Extent rows, cols;
  Matrix LayerWeights::*place;
  bool ModelConfig::*present = nullptr;
};

// What tells one family of decoders from another, apart from the sizes in ModelConfig. ForwardPass
// runs pre-norm decoders with rotary positions and a gated SiLU MLP: per layer whatever of
// LayerWeights has data. So a family with other biases is another table here; one with norms
// of q and k, or behind the projections, is a member more in LayerWeights, a row here, and a line
// in ForwardPass that asks whether it has data; one that fuses projections is rows here that cut
// one tensor.
struct Architecture {
  absl::string_view name;          // in `architectures` of config.json
  absl::string_view embedding;     // [vocab, hidden]
  absl::string_view layer_prefix;  // a layer's tensors are this, its number, a dot, their own name
  absl::Span<const LayerTensor> layer;
  absl::string_view final_norm;  // [hidden]
  absl::string_view head;        // [vocab, hidden]; not used when tied
  // Tensors with this ending follow from the configuration; old checkpoints carry them.
  absl::string_view derived_suffix;
};

// Dies for a name that ReadModelConfig would have refused.
const Architecture& ArchitectureOf(const ModelConfig& config);

}  // namespace baton
