#include "common/model/source/checkpoint.h"

#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/source/folder_advice.h"
#include "common/model/source/json_reader.h"

namespace baton {
namespace {

constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxShards = 4096;

// Returns true for a plain file name. Other names are refused, so that an index can't name a file
// outside of the folder.
bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name.front() != '.' && name.size() <= 255 &&
         name.find('/') == absl::string_view::npos && name.find('\0') == absl::string_view::npos &&
         absl::EndsWith(name, ".safetensors");
}

}  // namespace

std::optional<DType> CheckpointTensor::type() const {
  if (entry->dtype == "F32") return DType::kF32;
  if (entry->dtype == "F16") return DType::kF16;
  if (entry->dtype == "BF16") return DType::kBF16;
  return std::nullopt;
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.path_ = absl::StrCat(folder, "/model.safetensors");
  auto file = SafetensorsFile::Open(checkpoint.path_);
  if (file.ok()) {
    for (const auto& [name, entry] : (*file)->entries()) {
      checkpoint.tensors_[name] = {file->get(), &entry};
    }
    checkpoint.files_.push_back(*std::move(file));
    return checkpoint;
  }
  if (!absl::IsNotFound(file.status())) return file.status();
  RETURN_IF_ERROR(checkpoint.OpenShards(folder));
  return checkpoint;
}

absl::Status Checkpoint::OpenShards(const std::string& folder) {
  const std::string single = std::exchange(path_, absl::StrCat(path_, ".index.json"));
  auto index = JsonReader::Open(path_, kMaxIndexBytes);
  if (absl::IsNotFound(index.status())) {
    const absl::Status missing = MissingModelFile(folder, "model.safetensors");
    return absl::NotFoundError(absl::StrCat("no weights: neither ", single, " nor ", path_,
                                            " exists; ", missing.message()));
  }
  RETURN_IF_ERROR(index.status());
  const auto weight_map = index->StringMap("weight_map");
  RETURN_IF_ERROR(index->status());

  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [name, shard_name] : weight_map) {
    auto [shard, is_new] = shards.try_emplace(shard_name);
    if (is_new) {
      if (!IsPlainFileName(shard_name) || shards.size() > kMaxShards) {
        return absl::InvalidArgumentError(
            absl::StrCat(path_, ": weight_map puts \"", absl::CHexEscape(name), "\" into \"",
                         absl::CHexEscape(shard_name), "\"; expected one of at most ", kMaxShards,
                         " file names of the same folder that end with .safetensors"));
      }
      auto file = SafetensorsFile::Open(absl::StrCat(folder, "/", shard_name));
      if (absl::IsNotFound(file.status())) {
        return absl::NotFoundError(absl::StrCat(file.status().message(), "; ", path_,
                                                " names this file, and the folder lacks it"));
      }
      RETURN_IF_ERROR(file.status());
      shard->second = file->get();
      files_.push_back(*std::move(file));
    }
    const auto entry = shard->second->entries().find(name);
    if (entry == shard->second->entries().end()) {
      return absl::InvalidArgumentError(absl::StrCat(shard->second->path(), ": has no tensor \"",
                                                     absl::CHexEscape(name), "\"; expected by ",
                                                     path_));
    }
    tensors_[name] = {shard->second, &entry->second};
  }
  return absl::OkStatus();
}

DType Checkpoint::MatrixType() const {
  bool f16 = false, bf16 = false, other = false;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.entry->shape.size() < 2) continue;
    const std::string& type = tensor.entry->dtype;
    (type == "F16" ? f16 : type == "BF16" ? bf16 : other) = true;
  }
  if (other || f16 == bf16) return DType::kF32;
  return f16 ? DType::kF16 : DType::kBF16;
}

absl::Status Checkpoint::CheckUnchanged() const {
  for (const auto& file : files_) {
    RETURN_IF_ERROR(file->CheckUnchanged());
  }
  return absl::OkStatus();
}

}  // namespace baton
