#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/model/source/model_config.h"

namespace baton {

// Writes model.safetensors into `folder`, for programs that read their weights from a file. The
// weights are those of Model::WithRandomWeights(config, seed). Returns Unavailable if the file
// can't be written.
absl::Status WriteRandomCheckpoint(const ModelConfig& config, uint64_t seed,
                                   const std::string& folder);

}  // namespace baton
