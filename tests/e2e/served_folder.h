#pragma once

#include <filesystem>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// A copy of a folder with a tokenizer.json, so that programs can serve it; removed at the end.
class ServedFolder {
 public:
  // A name in common/model/testdata, or an absolute path.
  explicit ServedFolder(absl::string_view folder);
  ~ServedFolder();
  ServedFolder(const ServedFolder&) = delete;
  ServedFolder& operator=(const ServedFolder&) = delete;

  std::string path() const { return path_; }
  std::string Read(absl::string_view name) const;
  // Nothing is left of the file before.
  void Write(absl::string_view name, absl::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

}  // namespace baton
