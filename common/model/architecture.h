#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/layer_weights.h"
#include "common/model/source/model_config.h"

namespace baton {

// A tensor size that follows from the configuration.
enum class Extent {
  kOne,           // 1; for the rows of a vector, which has only one dimension in checkpoints
  kHidden,        //
  kQueries,       // heads * head_dim
  kKeys,          // kv_heads * head_dim
  kHead,          // head_dim
  kIntermediate,  //
  kVocab
};
int SizeOf(Extent extent, const ModelConfig& config);

// One weight of every layer: its name in checkpoints after the layer's prefix, its shape, and its
// member in LayerWeights. Some families fuse projections into one tensor. Neighbouring entries with
// the same name are then cut from the rows of that tensor, in order.
struct LayerTensor {
  absl::string_view name;
  Extent rows, cols;
  Matrix LayerWeights::*place;
};

// Weights that occur together, and the configuration switch that says whether a model has them. If
// the switch is null, every model has them.
struct LayerTensors {
  absl::Span<const LayerTensor> tensors;
  bool ModelConfig::*present = nullptr;
};

// The weights of one family of decoders. model_family.h says how the family reads config.json.
// ForwardPass runs pre-norm decoders with rotary positions and a gated SiLU MLP, and uses every
// member of LayerWeights that has data.
//
// To add a family (a group is one LayerTensors entry of `layer`):
// - Other biases, head norms or fused projections need only another list of groups.
// - Norms after the projections (Gemma) need a member in LayerWeights, an entry in a group, and a
//   line in ForwardPass that checks whether the member has data.
// - Experts need a vector of MLP weights in LayerWeights, a group with the expert's number in its
//   names, and a second path in ForwardPass::FeedForward.
// - Latent attention (MLA) needs a second ForwardPass::Attend and another KvLayout.
struct Architecture {
  absl::string_view name;  // name in `architectures` of config.json
  absl::Span<const LayerTensors> layer;
  absl::string_view embedding = "model.embed_tokens.weight";  // [vocab, hidden]
  absl::string_view layer_prefix = "model.layers.";    // followed by the layer's number and a dot
  absl::string_view final_norm = "model.norm.weight";  // [hidden]
  absl::string_view head = "lm_head.weight";           // [vocab, hidden]; not used if tied
  // Tensors with this suffix are not used: their values follow from the configuration, and only old
  // checkpoints have them.
  absl::string_view derived_suffix = ".rotary_emb.inv_freq";
};

// Returns the architecture of a configuration that ReadModelConfig has accepted. Aborts for an
// architecture name that ReadModelConfig refuses.
const Architecture& ArchitectureOf(const ModelConfig& config);

}  // namespace baton
