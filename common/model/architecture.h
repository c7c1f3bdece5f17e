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
  kHead,          // head_dim
  kIntermediate,  //
  kVocab
};
int SizeOf(Extent extent, const ModelConfig& config);

// One weight of every layer: its name in checkpoints behind the layer's prefix, its shape, and
// where it goes. Neighbours of one name are cut, in order, from the rows of one tensor: projections
// that some families fuse.
struct LayerTensor {
  absl::string_view name;
  Extent rows, cols;
  Matrix LayerWeights::*place;
};

// Weights that are there together, and the switch in the configuration that says so; nullptr for
// always.
struct LayerTensors {
  absl::Span<const LayerTensor> tensors;
  bool ModelConfig::*present = nullptr;
};

// The weights of one family of decoders; how it reads config.json is in model_family.h. ForwardPass
// runs pre-norm decoders with rotary positions and a gated SiLU MLP: per layer whatever of
// LayerWeights has data. So a family with other biases, norms of heads or fused projections is
// another list of groups here; one with norms behind the projections (Gemma) is a member more in
// LayerWeights, a row here, and a line in ForwardPass that asks whether it has data; one with
// experts is a vector of MLP weights there, a group here with the expert's number in its names, and
// a second way through ForwardPass::FeedForward; one with latent attention (MLA) a second
// ForwardPass::Attend and another KvLayout.
struct Architecture {
  absl::string_view name;  // in `architectures` of config.json
  absl::Span<const LayerTensors> layer;
  absl::string_view embedding = "model.embed_tokens.weight";  // [vocab, hidden]
  absl::string_view layer_prefix = "model.layers.";           // and the layer's number, and a dot
  absl::string_view final_norm = "model.norm.weight";         // [hidden]
  absl::string_view head = "lm_head.weight";                  // [vocab, hidden]; not used when tied
  // Tensors with this ending follow from the configuration; old checkpoints carry them.
  absl::string_view derived_suffix = ".rotary_emb.inv_freq";
};

// Dies for a name that ReadModelConfig would have refused.
const Architecture& ArchitectureOf(const ModelConfig& config);

}  // namespace baton
