#pragma once

#include <filesystem>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// A copy of a folder of common/model/testdata with a tokenizer.json, so that programs can serve it;
// removed at the end.
class ServedFolder {
 public:
  explicit ServedFolder(absl::string_view golden);
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
