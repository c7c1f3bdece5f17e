#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/source/mapped_file.h"
#include "kernels/formats/weight_format.h"

namespace baton {

// One tensor of a model, in the file that holds it.
struct WeightTensor {
  const MappedFile* file = nullptr;
  std::string type;                    // as the file spells it: "BF16", "F32", "Q4_K"
  std::optional<WeightFormat> format;  // nullopt if it is no type of weights that Baton reads
  std::vector<int64_t> shape;          // each >= 0; rows before columns
  uint64_t offset = 0;                 // file offset of the first byte
  uint64_t bytes = 0;

  // Type of the elements, or nullopt if they are quantised or no weights.
  std::optional<DType> element_type() const {
    return format ? ElementTypeOf(*format) : std::nullopt;
  }
  // As in MappedFile, for the bytes of this tensor.
  absl::Span<const std::byte> Bytes() const { return file->Bytes(offset, bytes); }
  absl::Status PageIn(const PageInStep& step) const { return file->PageIn(offset, bytes, step); }
};

}  // namespace baton
