#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Writes values little-endian, one after another.
class BytePacker {
 public:
  template <typename T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutFixed(absl::string_view value) { bytes_.append(value.data(), value.size()); }
  void PutString(absl::string_view value) {
    Put<uint32_t>(value.size());
    PutFixed(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads the values that BytePacker wrote. If the bytes end before a value is complete, this value
// and all later values are zero, and `ok()` is false.
class ByteUnpacker {
 public:
  explicit ByteUnpacker(absl::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    T value{};
    const absl::string_view raw = GetFixed(sizeof(value));
    if (ok_) std::memcpy(&value, raw.data(), sizeof(value));
    return value;
  }
  absl::string_view GetFixed(size_t bytes) {
    if (!ok_ || bytes > rest_.size()) {
      ok_ = false;
      return {};
    }
    const absl::string_view value = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return value;
  }
  absl::string_view GetString() { return GetFixed(Get<uint32_t>()); }

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  absl::string_view rest_;
  bool ok_ = true;
};

}  // namespace baton
