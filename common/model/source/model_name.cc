#include "common/model/source/model_name.h"

#include <filesystem>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace baton {

std::string ModelNameAt(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A file in a hub's cache is a link to a file whose name is a hash, so its own name counts.
  if (fs::is_regular_file(path, error)) {
    const std::string file = fs::path(path).filename().string();
    absl::string_view name = file;
    absl::ConsumeSuffix(&name, ".gguf");
    return std::string(name);
  }
  const fs::path whole = fs::canonical(path, error);
  return error ? "" : whole.filename().string();
}

}  // namespace baton
