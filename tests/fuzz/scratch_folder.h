#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace baton {

// A folder in memory where there is one, for readers that take a path; removed at exit.
class ScratchFolder {
 public:
  ScratchFolder() {
    path_ = std::filesystem::is_directory("/dev/shm")
                ? "/dev/shm/baton_fuzz_XXXXXX"
                : std::filesystem::temp_directory_path().string() + "/baton_fuzz_XXXXXX";
    BATON_CHECK(mkdtemp(path_.data()) != nullptr) << path_;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const char* name) const { return path_ + "/" + name; }

  void Write(const char* name, absl::string_view bytes) const {
    std::FILE* file = std::fopen(File(name).c_str(), "wb");
    BATON_CHECK(file != nullptr) << File(name);
    // No bytes may be at no address, which fwrite must not be given.
    BATON_CHECK(bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size())
        << File(name);
    std::fclose(file);
  }

 private:
  std::string path_;
};

}  // namespace baton
