#include "common/model/source/model_name.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace baton {

std::string ModelNameAt(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A file in a hub's cache is a link to a file whose name is a hash, so its own name counts.
  if (fs::is_regular_file(path, error)) {
    const std::string file = fs::path(path).filename().string();
    absl::string_view name = file;
    if (absl::EndsWithIgnoreCase(name, ".gguf")) name.remove_suffix(5);
    // The first part of a split file ends in this, with the number of parts in place of 00000.
    static constexpr absl::string_view kFirst = "-00001-of-00000";
    if (name.size() > kFirst.size()) {
      const absl::string_view end = name.substr(name.size() - kFirst.size());
      if (absl::StartsWith(end, kFirst.substr(0, 10)) &&
          std::all_of(end.end() - 5, end.end(), absl::ascii_isdigit)) {
        name.remove_suffix(kFirst.size());
      }
    }
    return std::string(name);
  }
  const fs::path whole = fs::canonical(path, error);
  return error ? "" : whole.filename().string();
}

}  // namespace baton
