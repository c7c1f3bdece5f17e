#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Names in tests/shapes/configs: config.json files of models that people run, the smallest first.
const std::vector<std::string>& ShapeNames();

// How the weights of a folder come to be.
enum class ShapeWeights {
  kRandom,  // on disk, from a seed
  kSparse,  // a file of the right size without a byte on disk: all weights are zero
};

// Makes a folder that router and workers can serve: the shape's config.json, a tokenizer.json of
// bytes, and model.safetensors. Unavailable where it can't be written.
absl::Status WriteShapeFolder(absl::string_view name, ShapeWeights weights,
                              const std::string& folder);

}  // namespace baton
