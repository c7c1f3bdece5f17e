#include <cstdint>

#include "common/base/check.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/model_source.h"
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
  const auto source = baton::ModelSource::Open(folder.File("model.gguf"));
  if (!source.ok()) return 0;
  auto config = (*source)->ReadConfig();
  if (config.ok()) {
    (*source)->ReadDefaults(&*config).IgnoreError();
    (*source)->OpenCheckpoint(*config).status().IgnoreError();
  }
  const auto tokenizer = (*source)->ReadTokenizer();
  if (tokenizer.ok()) baton::Tokenizer::FromJson(tokenizer->json, "file").status().IgnoreError();
  (*source)->ReadChatTexts().status().IgnoreError();
  return 0;
}
