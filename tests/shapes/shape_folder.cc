#include "tests/shapes/shape_folder.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/model/model.h"
#include "tests/bench/random_checkpoint.h"

namespace baton {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Returns a tokenizer with 256 tokens and no merges. The tokens are the characters by which GPT-2
// writes the 256 bytes.
json ByteTokenizer() {
  json vocab;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printed = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const uint32_t code = printed ? byte : next++;
    std::string character;
    if (code < 0x80) {
      character = static_cast<char>(code);
    } else {
      character = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    }
    vocab[character] = byte;
  }
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

absl::Status WriteSparse(const ModelConfig& config, const std::string& folder) {
  json header;
  int64_t offset = 0;
  for (const TensorShape& tensor : Model::TensorsOf(config)) {
    const int64_t end = offset + 2 * tensor.elements();
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.Dimensions()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  const std::string path = absl::StrCat(folder, "/model.safetensors"), text = header.dump();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const uint64_t size = text.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  std::error_code error;
  fs::resize_file(path, sizeof(size) + size + offset, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& ShapeNames() {
  static const auto* names =
      new std::vector<std::string>{"qwen2.5-0.5b", "qwen3-0.6b", "llama-3.2-1b",  "llama-3.2-3b",
                                   "phi-4-mini",   "mistral-7b", "qwen2.5-7b-1m", "llama-3.1-8b"};
  return *names;
}

absl::Status WriteShapeFolder(absl::string_view name, ShapeWeights weights,
                              const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string from = absl::StrCat(BATON_SOURCE_DIR, "/tests/shapes/configs/", name, ".json");
  fs::copy_file(from, absl::StrCat(folder, "/config.json"), fs::copy_options::overwrite_existing,
                error);
  if (error) return absl::UnavailableError(absl::StrCat(from, ": ", error.message()));
  std::ofstream(absl::StrCat(folder, "/tokenizer.json")) << ByteTokenizer().dump();
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(folder));
  return weights == ShapeWeights::kRandom ? WriteRandomCheckpoint(config, 1, folder)
                                          : WriteSparse(config, folder);
}

}  // namespace baton
