#include <cstdint>

#include "common/base/check.h"
#include "common/model/source/safetensors_file.h"
#include "tests/fuzz/memory_folder.h"

// The input is a *.safetensors file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const baton::MemoryFolder folder;
  folder.Write("model.safetensors", {reinterpret_cast<const char*>(data), size});
  const auto file = baton::SafetensorsFile::Open(folder.File("model.safetensors"));
  if (!file.ok()) {
    BATON_CHECK(!file.status().message().empty());
    return 0;
  }
  uint64_t bytes = 0, sum = 0;
  for (const auto& [name, entry] : (*file)->tensors()) {
    bytes += entry.bytes;
    for (const std::byte byte : entry.Bytes()) sum += static_cast<uint8_t>(byte);
  }
  // Checks that no tensor overlaps another one or leaves the file: all tensors together are not
  // larger than the file. `sum` is used only so that every byte is read.
  BATON_CHECK(bytes <= size && sum <= 255 * bytes) << bytes;
  return 0;
}
