#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "absl/strings/string_view.h"

namespace baton {

// A folder of a test's own, gone with it.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("baton_" + name + "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  std::string Path(const std::string& name) const { return path_ / name; }
  // Its path.
  std::string Write(const std::string& name, absl::string_view text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace baton
