#include <cstdint>

#include "common/base/check.h"
#include "common/model/source/gguf_config.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/gguf_parts.h"
#include "common/model/source/gguf_tokenizer.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/fuzz/memory_folder.h"

// The input is a GGUF file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const baton::MemoryFolder folder;
  folder.Write("model.gguf", {reinterpret_cast<const char*>(data), size});
  const auto file = baton::GgufFile::Open(folder.File("model.gguf"));
  if (!file.ok()) {
    BATON_CHECK(!file.status().message().empty());
    return 0;
  }
  uint64_t bytes = 0, sum = 0;
  for (const auto& [name, tensor] : (*file)->tensors()) {
    bytes += tensor.bytes;
    for (const std::byte byte : tensor.Bytes()) sum += static_cast<uint8_t>(byte);
  }
  // Checks that no tensor overlaps another one or leaves the file: all tensors together are not
  // larger than the file. `sum` is used only so that every byte is read.
  BATON_CHECK(bytes <= size && sum <= 255 * bytes) << bytes;
  const auto parts = baton::GgufParts::Open(folder.File("model.gguf"));
  if (!parts.ok()) return 0;
  auto config = baton::ReadGgufConfig(*parts);
  if (config.ok()) baton::ReadGgufDefaults(parts->first(), &*config).IgnoreError();
  const auto json = baton::TokenizerJsonOfGguf(parts->first());
  if (json.ok()) baton::Tokenizer::FromJson(*json, "file").status().IgnoreError();
  return 0;
}
