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

// A folder of a test's own, gone with it. Where something can't be read or written, it dies.
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

  // Replaces what has the name, if anything, and makes the folders in `name`. Returns File(name).
  std::string Write(absl::string_view name, absl::string_view bytes) const {
    const std::string file = File(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    // A new file each time: some file systems flush one that is cut to nothing and written again.
    std::filesystem::remove_all(file);
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    BATON_CHECK(out.good()) << file;
    return file;
  }

  // A program that begins with "#!".
  std::string WriteScript(absl::string_view name, absl::string_view text) const {
    const std::string file = Write(name, text);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }

 private:
  std::string path_;
};

}  // namespace baton
