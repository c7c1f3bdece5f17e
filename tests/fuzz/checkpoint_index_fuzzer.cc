#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/source/checkpoint.h"
#include "tests/fuzz/memory_folder.h"

namespace {

// Returns a safetensors file with one tensor of two bytes.
std::string Shard(absl::string_view tensor) {
  std::string header =
      absl::StrCat("{\"", tensor, "\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}");
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  return absl::StrCat(length, header, "xx");
}

}  // namespace

// The input is model.safetensors.index.json. Beside it, a.safetensors holds the tensor "a" and
// b.safetensors holds the tensor "b".
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const baton::MemoryFolder* const folder = [] {
    static const baton::MemoryFolder made;
    made.Write("a.safetensors", Shard("a"));
    made.Write("b.safetensors", Shard("b"));
    return &made;
  }();
  folder->Write("model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  const auto checkpoint = baton::Checkpoint::Open(folder->path());
  if (!checkpoint.ok()) {
    BATON_CHECK(!checkpoint.status().message().empty());
    return 0;
  }
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    BATON_CHECK(name == "a" || name == "b") << name;
    BATON_CHECK(tensor.Bytes().size() == 2);
  }
  return 0;
}
