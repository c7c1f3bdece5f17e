#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace baton {

// A folder for one test, deleted with this object. Aborts if a file can't be read or written.
class ScratchFolder {
 public:
  explicit ScratchFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(parent / "baton-XXXXXX") {
    BATON_CHECK(mkdtemp(path_.data()) != nullptr) << path_;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const { return absl::StrCat(path_, "/", name); }

  std::string Read(absl::string_view name) const {
    std::ifstream in(File(name), std::ios::binary);
    BATON_CHECK(in.good()) << File(name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // Writes the file `name`. Replaces an existing file of that name, and creates the folders in
  // `name`. Returns File(name).
  std::string Write(absl::string_view name, absl::string_view bytes) const {
    const std::string file = File(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    // Always writes a new file: some file systems flush a file that is truncated and written again.
    std::filesystem::remove_all(file);
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    BATON_CHECK(out.good()) << file;
    return file;
  }

  // Writes an executable script. `text` begins with "#!".
  std::string WriteScript(absl::string_view name, absl::string_view text) const {
    const std::string file = Write(name, text);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }

 private:
  std::string path_;
};

}  // namespace baton
