#include "common/model/odd_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/model/architecture.h"
#include "common/model/source/rope_config.h"
#include "kernels/formats/element.h"

namespace baton {
namespace {

constexpr size_t kStep = 1 << 20;  // bytes that are read at a time

absl::StatusOr<bool> SameBytes(const WeightTensor& a, const WeightTensor& b) {
  if (a.type != b.type || a.shape != b.shape) return false;
  std::vector<char> of_a(kStep), of_b(kStep);
  for (uint64_t done = 0; done < a.bytes; done += kStep) {
    const size_t bytes = std::min<uint64_t>(kStep, a.bytes - done);
    RETURN_IF_ERROR(a.file->Read(a.offset + done, of_a.data(), bytes));
    RETURN_IF_ERROR(b.file->Read(b.offset + done, of_b.data(), bytes));
    if (memcmp(of_a.data(), of_b.data(), bytes) != 0) return false;
  }
  return true;
}

// Returns the values of a tensor of at most kStep bytes, or nullopt if it is larger or has another
// type of element.
absl::StatusOr<std::optional<std::vector<float>>> SmallTensor(const WeightTensor& tensor) {
  const std::optional<DType> type = tensor.element_type();
  if (!type || tensor.bytes > kStep) return std::nullopt;
  std::vector<char> bytes(tensor.bytes);
  RETURN_IF_ERROR(tensor.file->Read(tensor.offset, bytes.data(), bytes.size()));
  std::vector<float> values(bytes.size() / DTypeBytes(*type));
  ConvertElements(*type, bytes.data(), DType::kF32, values.data(), values.size());
  return values;
}

std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, 200)), "\"");
}

class Settling {
 public:
  Settling(ModelConfig* config, Checkpoint* checkpoint, std::vector<std::string>* warnings)
      : config_(*config),
        checkpoint_(*checkpoint),
        warnings_(*warnings),
        architecture_(ArchitectureOf(*config)) {}

  absl::Status SettleHead() {
    if (!config_.tied_embeddings) return absl::OkStatus();
    const std::string head(architecture_.head), embedding(architecture_.embedding);
    const auto found = Find(head);
    if (!found) return absl::OkStatus();
    const auto shared = Find(embedding);
    if (!shared) {
      checkpoint_.AddName(head, embedding);
      Warn(absl::StrCat("has no ", Quoted(embedding), ", which config.json ties to ", Quoted(head),
                        ": the model uses ", Quoted(head), " as both"));
    } else {
      ASSIGN_OR_RETURN(const bool copy, SameBytes(*found, *shared));
      if (!copy) {
        config_.tied_embeddings = false;
        Warn(absl::StrCat("config.json ties ", Quoted(head), " to ", Quoted(embedding),
                          ", but the file has both with different values: the model uses both, as "
                          "transformers does; tie_word_embeddings false would say so"));
        return absl::OkStatus();
      }
    }
    checkpoint_.Remove(head);
    return absl::OkStatus();
  }

  // Takes out the tensors that are not used, and warns of them.
  absl::Status SettleOthers() {
    std::set<std::string> names;  // in order, so that the same folder gives the same warnings
    for (const auto& [name, tensor] : checkpoint_.tensors()) names.insert(name);
    std::vector<std::string> task_heads, layers, zeros, frequencies;
    for (const std::string& name : names) {
      if (absl::EndsWith(name, architecture_.derived_suffix)) {
        ASSIGN_OR_RETURN(const bool same, HasFrequencies(*Find(name)));
        if (!same) frequencies.push_back(name);
      } else if (absl::StartsWith(name, "v_head.")) {
        task_heads.push_back(name);
      } else if (IsBeyondLayers(name)) {
        layers.push_back(name);
      } else if (absl::EndsWith(name, ".bias") && !IsWanted(name)) {
        ASSIGN_OR_RETURN(const bool zero, IsZero(*Find(name)));
        if (!zero) continue;
        zeros.push_back(name);
      } else {
        continue;
      }
      checkpoint_.Remove(name);
    }
    WarnOfUnused(frequencies,
                 "rotary frequencies that differ from those of config.json; the model uses those "
                 "of config.json, as transformers does");
    WarnOfUnused(task_heads, "a value head, which generation does not use");
    WarnOfUnused(layers, absl::StrCat("layers beyond the ", config_.layers, " of ",
                                      checkpoint_.settings_name(), ", which the model uses"));
    WarnOfUnused(zeros, absl::StrCat("biases that ", config_.architecture,
                                     " does not have with these settings; all of them are 0"));
    return absl::OkStatus();
  }

 private:
  std::optional<WeightTensor> Find(const std::string& name) const {
    const auto found = checkpoint_.tensors().find(name);
    if (found == checkpoint_.tensors().end()) return std::nullopt;
    return found->second;
  }

  void Warn(absl::string_view what) {
    warnings_.push_back(absl::StrCat(checkpoint_.path(), ": ", what));
  }
  void WarnOfUnused(const std::vector<std::string>& names, absl::string_view what) {
    if (names.empty()) return;
    Warn(absl::StrCat(names.size(),
                      names.size() == 1 ? " tensor is not used, " : " tensors are not used, ",
                      Quoted(names.front()), names.size() == 1 ? ": " : " and others: ", what));
  }

  bool IsBeyondLayers(absl::string_view name) const {
    int layer = 0;
    if (!absl::ConsumePrefix(&name, architecture_.layer_prefix)) return false;
    const absl::string_view number = name.substr(0, name.find('.'));
    return absl::SimpleAtoi(number, &layer) && number == absl::StrCat(layer) &&
           layer >= config_.layers;
  }

  bool IsWanted(absl::string_view name) const {
    for (const LayerTensors& group : architecture_.layer) {
      if (group.present != nullptr && !(config_.*group.present)) continue;
      for (const LayerTensor& tensor : group.tensors) {
        if (absl::EndsWith(name, absl::StrCat(".", tensor.name))) return true;
      }
    }
    return false;
  }

  static absl::StatusOr<bool> IsZero(const WeightTensor& tensor) {
    ASSIGN_OR_RETURN(const auto values, SmallTensor(tensor));
    return values && std::all_of(values->begin(), values->end(), [](float x) { return x == 0; });
  }

  // Old checkpoints hold the frequencies in the type of their weights, so they are rounded.
  absl::StatusOr<bool> HasFrequencies(const WeightTensor& tensor) const {
    ASSIGN_OR_RETURN(const auto values, SmallTensor(tensor));
    const std::vector<float> wanted =
        RopeInverseFrequency(config_.rope, RopeReach(config_.rope, 1, 1));
    return values && std::equal(values->begin(), values->end(), wanted.begin(), wanted.end(),
                                [](float a, float b) {
                                  return std::abs(a - b) <= 0x1p-8f * std::abs(b) + 1e-7f;
                                });
  }

  ModelConfig& config_;
  Checkpoint& checkpoint_;
  std::vector<std::string>& warnings_;
  const Architecture& architecture_;
};

}  // namespace

absl::Status SettleOddTensors(ModelConfig* config, Checkpoint* checkpoint,
                              std::vector<std::string>* warnings) {
  Settling settling(config, checkpoint, warnings);
  RETURN_IF_ERROR(settling.SettleHead());
  return settling.SettleOthers();
}

}  // namespace baton
