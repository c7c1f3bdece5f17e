#include <cmath>
#include <cstdint>
#include <filesystem>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/model/source/model_config.h"
#include "tests/fuzz/memory_folder.h"

// The input is a config.json. If the input has a zero byte, the bytes after the first zero byte are
// a generation_config.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const baton::MemoryFolder folder;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  folder.Write("config.json", input.substr(0, zero));
  if (zero == absl::string_view::npos) {
    std::filesystem::remove(folder.File("generation_config.json"));
  } else {
    folder.Write("generation_config.json", input.substr(zero + 1));
  }
  auto config = baton::ReadModelConfig(folder.path());
  if (config.ok()) {
    const absl::Status generation = baton::ReadGenerationConfig(folder.path(), &*config);
    if (!generation.ok()) config = generation;
  }
  if (!config.ok()) {
    BATON_CHECK(!config.status().message().empty());
    return 0;
  }
  BATON_CHECK(config->layers > 0 && config->hidden > 0 && config->vocab > 0);
  BATON_CHECK(config->heads > 0 && config->heads % config->kv_heads == 0);
  for (const baton::TokenId token : config->generation.end_tokens) {
    BATON_CHECK(token >= 0 && token < config->vocab) << token;
  }
  BATON_CHECK(config->rope.dims > 0 && config->rope.dims <= config->head_dim);
  for (const int tokens : {1, config->rope.original_context + 1, 1 << 28}) {
    const int reach = baton::RopeReach(config->rope, 1, tokens);
    BATON_CHECK(reach >= tokens) << tokens << " " << reach;
    for (const float frequency : baton::RopeInverseFrequency(config->rope, reach)) {
      BATON_CHECK(std::isfinite(frequency)) << frequency;
    }
  }
  return 0;
}
