#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/source/checkpoint.h"
#include "common/model/source/model_config.h"

namespace baton {

// The configuration and the tensor table of a model (ModelSource), without the weights. A worker
// reads it once and passes this object on.
struct ModelFolder {
  ModelConfig config;
  std::optional<Checkpoint> checkpoint;  // absent if the weights do not come from the folder
  std::vector<std::string> warnings;     // for the log, from SettleOddTensors()

  // Reads the settings and, with `with_checkpoint`, the tables of tensors. Returns InvalidArgument
  // if the tensors are not those of the model; the message names the file, the tensor, what was
  // expected and what was found. Other errors are those of ModelSource.
  static absl::StatusOr<ModelFolder> Open(const std::string& path, bool with_checkpoint = true);
};

}  // namespace baton
