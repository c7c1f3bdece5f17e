#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/source/mapped_file.h"
#include "common/model/source/weight_tensor.h"

namespace baton {

class JsonValue;

// A safetensors file (github.com/huggingface/safetensors, "Format"), mapped read-only. Open trusts
// nothing in the file: it checks the header's length and JSON, and every name, shape and extent.
// For element types of known size, the extent must fit the shape. Immutable.
class SafetensorsFile {
 public:
  // The same limit as in the safetensors library (MAX_HEADER_SIZE).
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Returns NotFound if the file does not exist, and InvalidArgument if it is damaged. The message
  // names the file, the tensor, what was found and what was expected.
  static absl::StatusOr<std::unique_ptr<const SafetensorsFile>> Open(const std::string& path);

  const MappedFile& file() const { return *file_; }
  const std::map<std::string, WeightTensor>& tensors() const { return tensors_; }

 private:
  explicit SafetensorsFile(std::unique_ptr<const MappedFile> file) : file_(std::move(file)) {}
  absl::Status ReadHeader();
  absl::Status ReadTensors(absl::string_view header);
  absl::Status AddTensor(absl::string_view name, const JsonValue& value);
  absl::Status CheckExtents() const;
  absl::Status Bad(absl::string_view what) const;

  const std::unique_ptr<const MappedFile> file_;
  uint64_t data_begin_ = 0;  // offset of the first tensor byte
  std::map<std::string, WeightTensor> tensors_;
};

}  // namespace baton
