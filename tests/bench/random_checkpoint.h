#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/model/model_config.h"

namespace baton {

// model.safetensors with the weights that Model::WithRandomWeights makes of configuration and seed,
// in `folder`, for programs that read nothing else. Unavailable where it can't be written.
absl::Status WriteRandomCheckpoint(const ModelConfig& config, uint64_t seed,
                                   const std::string& folder);

}  // namespace baton
