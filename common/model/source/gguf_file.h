#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/source/mapped_file.h"
#include "common/model/source/weight_tensor.h"

namespace baton {

// The value of a setting in a GGUF file. Integers of every width are one type, and so are both
// widths of floats.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

// A GGUF file of version 2 or 3 (github.com/ggml-org/ggml, docs/gguf.md), mapped read-only. Open
// trusts nothing in the file: it checks every length, name, type, shape and extent. Immutable.
class GgufFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 64 << 20;  // largest published: about 20 MiB
  static constexpr uint64_t kMaxSettings = 1 << 16;
  static constexpr uint64_t kMaxTensors = 1 << 16;
  static constexpr uint64_t kMaxNameBytes = (1 << 16) - 1;  // as the format says, for keys too
  static constexpr int kMaxDimensions = 4;

  // Returns NotFound if the file does not exist, and InvalidArgument if it is damaged or of another
  // version. The message names the file, the setting or tensor, what was found and what was
  // expected.
  static absl::StatusOr<std::unique_ptr<const GgufFile>> Open(const std::string& path);
  // Returns true if there is a file at `path` that begins as a GGUF file does, or whose name ends
  // with .gguf. False for folders.
  static bool IsGguf(const std::string& path);

  const MappedFile& file() const { return *file_; }
  // Shapes have rows before columns, so in the reverse order of the file. Tensors of types that
  // Baton does not read have no format.
  const std::map<std::string, WeightTensor>& tensors() const { return tensors_; }
  const std::map<std::string, GgufValue>& settings() const { return settings_; }
  // Returns the value of a setting if there is one of this type, and otherwise null.
  template <typename T>
  const T* Find(absl::string_view key) const {
    const auto found = settings_.find(std::string(key));
    return found == settings_.end() ? nullptr : std::get_if<T>(&found->second);
  }

 private:
  class Cursor;
  explicit GgufFile(std::unique_ptr<const MappedFile> file) : file_(std::move(file)) {}
  absl::Status ReadHeader();
  absl::Status ReadSetting(Cursor* cursor);
  absl::Status ReadTensor(Cursor* cursor);
  absl::Status PlaceTensors(uint64_t header_end);
  absl::Status Bad(absl::string_view what) const;

  const std::unique_ptr<const MappedFile> file_;
  std::map<std::string, GgufValue> settings_;
  std::map<std::string, WeightTensor> tensors_;
};

}  // namespace baton
