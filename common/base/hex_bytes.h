#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Returns the bytes that absl::BytesToHexString wrote. `hex` must have an even number of hexadecimal
// digits. Abseil's own function for this has another signature in newer versions.
inline std::string BytesOfHex(absl::string_view hex) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(value(hex[i]) * 16 + value(hex[i + 1])));
  }
  return bytes;
}

}  // namespace baton
