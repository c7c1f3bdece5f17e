#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace baton {

// Returns the bytes of a file, or an empty string if it can't be read.
inline std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace baton
