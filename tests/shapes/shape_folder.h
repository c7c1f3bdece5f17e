#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Returns the names of the config.json files in tests/shapes/configs, the smallest model first.
// They are configurations of published models.
const std::vector<std::string>& ShapeNames();

// Origin of a folder's weights.
enum class ShapeWeights {
  kRandom,  // The weights are on disk, and were drawn from a seed.
  // The weights are a sparse file of the right size, which takes no disk space: all weights are
  // zero.
  kSparse,
};

// Makes a folder that router and workers can serve. It has the config.json `name`, a tokenizer.json
// with a token for each byte, and model.safetensors. Returns Unavailable if the folder can't be
// written.
absl::Status WriteShapeFolder(absl::string_view name, ShapeWeights weights,
                              const std::string& folder);

}  // namespace baton
