#include "common/model/source/checkpoint.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/source/folder_advice.h"
#include "common/model/source/gguf_config.h"
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

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.path_ = absl::StrCat(folder, "/model.safetensors");
  auto file = SafetensorsFile::Open(checkpoint.path_);
  if (file.ok()) {
    for (const auto& [name, tensor] : (*file)->tensors()) checkpoint.tensors_[name] = tensor;
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
    const auto tensor = shard->second->tensors().find(name);
    if (tensor == shard->second->tensors().end()) {
      return absl::InvalidArgumentError(absl::StrCat(shard->second->file().path(),
                                                     ": has no tensor \"", absl::CHexEscape(name),
                                                     "\"; expected by ", path_));
    }
    tensors_[name] = tensor->second;
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpoint::FromGguf(std::shared_ptr<const GgufParts> parts,
                                                const ModelConfig& config) {
  Checkpoint checkpoint;
  checkpoint.path_ = parts->first().file().path();
  checkpoint.settings_name_ = "its settings";
  for (const auto& part : parts->files()) {
    for (const auto& [name, tensor] : part->tensors()) {
      if (IsRopeFactors(name)) continue;  // ReadGgufConfig has read these.
      const std::string known = NameOfGgufTensor(config, name);
      const std::string& path = part->file().path();
      if (known.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": has tensor \"", absl::CHexEscape(name), "\", which no ", config.architecture,
            " of ", config.layers, config.layers == 1 ? " layer has" : " layers has"));
      }
      if (!checkpoint.tensors_.emplace(known, tensor).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": has tensor \"", absl::CHexEscape(name),
                         "\", which another part of the file has too"));
      }
    }
  }
  checkpoint.gguf_ = std::move(parts);
  return checkpoint;
}

WeightFormat Checkpoint::MatrixFormat() const {
  bool f16 = false, bf16 = false, other = false;
  std::optional<WeightFormat> quantised;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.format && IsQuantised(*tensor.format)) {
      // The same one for every order of the table.
      quantised = quantised ? std::min(*quantised, *tensor.format) : *tensor.format;
    }
    (tensor.format == WeightFormat::kF16    ? f16
     : tensor.format == WeightFormat::kBF16 ? bf16
                                            : other) = true;
  }
  if (quantised) return *quantised;
  if (other || f16 == bf16) return WeightFormat::kF32;
  return f16 ? WeightFormat::kF16 : WeightFormat::kBF16;
}

absl::string_view Checkpoint::TypesOf(bool is_matrix) const {
  if (!gguf_) return "BF16, F16 or F32";
  if (!is_matrix) return "F32, F16 or BF16";
  return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K: make such a file with "
         "llama-quantize, for example of type Q4_K_M";
}

absl::Status Checkpoint::CheckUnchanged() const {
  for (const auto& file : files_) {
    RETURN_IF_ERROR(file->file().CheckUnchanged());
  }
  if (!gguf_) return absl::OkStatus();
  for (const auto& part : gguf_->files()) RETURN_IF_ERROR(part->file().CheckUnchanged());
  return absl::OkStatus();
}

}  // namespace baton
