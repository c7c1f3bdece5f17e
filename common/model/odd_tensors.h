#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/model/source/checkpoint.h"
#include "common/model/source/model_config.h"

namespace baton {

// Treats tensors as transformers 5 does if a published folder and its config.json disagree:
// - `tie_word_embeddings` is true, and the file has both an embedding and a head. If their bytes
// are
//   the same, the head is a copy and is taken out of the checkpoint. If they differ, the model has
//   the head of its own: `tied_embeddings` becomes false.
// - `tie_word_embeddings` is true, and the file has the shared matrix only as the head. The
//   embedding then is this tensor.
// - Tensors that transformers reports as unexpected and does not use are taken out: rotary
//   frequencies (they follow from config.json), heads of other tasks (`v_head.`), layers beyond
//   num_hidden_layers, and biases of zeros that the architecture does not have.
// Appends to `warnings` a sentence for each kind that it finds, except for copies, with the file
// and the tensor. All other tensors that a model does not use stay, and Model::CheckTensors refuses
// them. Reads only the tensors that it compares. Returns DataLoss if a file is too short.
absl::Status SettleOddTensors(ModelConfig* config, Checkpoint* checkpoint,
                              std::vector<std::string>* warnings);

}  // namespace baton
