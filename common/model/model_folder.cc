#include "common/model/model_folder.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/model.h"
#include "common/model/odd_tensors.h"
#include "common/model/source/model_source.h"

namespace baton {
absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path, bool with_checkpoint) {
  ASSIGN_OR_RETURN(const auto source, ModelSource::Open(path));
  ASSIGN_OR_RETURN(ModelConfig config, source->ReadConfig());
  ModelFolder folder{.config = std::move(config), .checkpoint = std::nullopt, .warnings = {}};
  if (!with_checkpoint) return folder;
  ASSIGN_OR_RETURN(folder.checkpoint, source->OpenCheckpoint(folder.config));
  RETURN_IF_ERROR(SettleOddTensors(&folder.config, &*folder.checkpoint, &folder.warnings));
  RETURN_IF_ERROR(Model::CheckTensors(folder.config, *folder.checkpoint));
  return folder;
}

}  // namespace baton
