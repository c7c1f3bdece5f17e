#include "common/model/model_folder.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/model.h"
#include "common/model/odd_tensors.h"
#include "common/model/source/gguf_config.h"
#include "common/model/source/gguf_parts.h"

namespace baton {
namespace {

absl::StatusOr<ModelFolder> OpenGguf(const std::string& path, bool with_checkpoint) {
  ASSIGN_OR_RETURN(GgufParts parts, GgufParts::Open(path));
  ASSIGN_OR_RETURN(ModelConfig config, ReadGgufConfig(parts));
  ModelFolder folder{.config = std::move(config), .checkpoint = std::nullopt, .warnings = {}};
  if (!with_checkpoint) return folder;
  ASSIGN_OR_RETURN(folder.checkpoint, Checkpoint::FromGguf(std::move(parts), folder.config));
  RETURN_IF_ERROR(Model::CheckTensors(folder.config, *folder.checkpoint));
  return folder;
}

}  // namespace

absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path, bool with_checkpoint) {
  if (GgufFile::IsGguf(path)) return OpenGguf(path, with_checkpoint);
  ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(path));
  ModelFolder folder{.config = std::move(config), .checkpoint = std::nullopt, .warnings = {}};
  if (!with_checkpoint) return folder;
  ASSIGN_OR_RETURN(folder.checkpoint, Checkpoint::Open(path));
  RETURN_IF_ERROR(SettleOddTensors(&folder.config, &*folder.checkpoint, &folder.warnings));
  RETURN_IF_ERROR(Model::CheckTensors(folder.config, *folder.checkpoint));
  return folder;
}

}  // namespace baton
