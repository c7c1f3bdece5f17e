#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// For tests: writes GGUF files, right ones and damaged ones.
class GgufBytes {
 public:
  enum Type : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kText,
    kList,
    kU64,
    kI64,
    kF64
  };

  explicit GgufBytes(uint32_t version = 3) : version_(version) {}

  static std::string Text(absl::string_view text) {
    std::string bytes = Raw(uint64_t{text.size()});
    bytes.append(text.data(), text.size());
    return bytes;
  }
  template <typename T>
  static std::string Raw(T number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  // Adds a setting whose value has these bytes.
  GgufBytes& Set(absl::string_view key, uint32_t type, absl::string_view value) {
    settings_ += Text(key) + Raw(type) + std::string(value);
    ++setting_count_;
    return *this;
  }
  GgufBytes& SetText(absl::string_view key, absl::string_view value) {
    return Set(key, kText, Text(value));
  }
  GgufBytes& SetU32(absl::string_view key, uint32_t value) { return Set(key, kU32, Raw(value)); }
  GgufBytes& SetF32(absl::string_view key, float value) { return Set(key, kF32, Raw(value)); }
  GgufBytes& SetList(absl::string_view key, uint32_t type, const std::vector<std::string>& values) {
    std::string bytes = Raw(type) + Raw(uint64_t{values.size()});
    for (const std::string& value : values) bytes += value;
    return Set(key, kList, bytes);
  }
  // Adds a tensor, whose sizes are in the order of the file: columns first. It begins at the next
  // multiple of 32 bytes of the data, or at `offset`.
  GgufBytes& AddTensor(absl::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                       absl::string_view data, int64_t offset = -1) {
    data_.resize((data_.size() + 31) / 32 * 32);
    tensors_ += Text(name) + Raw(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) tensors_ += Raw(size);
    tensors_ +=
        Raw(type) + Raw(offset < 0 ? uint64_t{data_.size()} : static_cast<uint64_t>(offset));
    data_.append(data.data(), data.size());
    ++tensor_count_;
    return *this;
  }

  std::string Build() const {
    std::string bytes =
        "GGUF" + Raw(version_) + Raw(tensor_count_) + Raw(setting_count_) + settings_ + tensors_;
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes + data_;
  }

 private:
  const uint32_t version_;
  uint64_t setting_count_ = 0, tensor_count_ = 0;
  std::string settings_, tensors_, data_;
};

}  // namespace baton
