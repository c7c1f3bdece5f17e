#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Returns the names of the config.json files in tests/shapes/configs, the smallest model first.
// They are models that people run.
const std::vector<std::string>& ShapeNames();

// Origin of a folder's weights.
enum class ShapeWeights {
  kRandom,  // On disk, drawn from a seed.
  kSparse,  // A sparse file of the right size that takes no disk space: all weights are zero.
};

// Makes a folder that router and workers can serve: the shape's config.json, a tokenizer.json of
// bytes, and model.safetensors. Returns Unavailable if it can't be written.
absl::Status WriteShapeFolder(absl::string_view name, ShapeWeights weights,
                              const std::string& folder);

}  // namespace baton
