#include "common/model/source/safetensors_file.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json_value.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr uint64_t kLengthBytes = 8;  // the file begins with the header's length, little-endian

// Returns the number of bits of one element, or nullopt for an unknown type.
std::optional<uint64_t> DtypeBits(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, uint64_t> kTypes[] = {
      {"BOOL", 8}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"U16", 16},
      {"I16", 16}, {"F16", 16}, {"BF16", 16}, {"U32", 32},    {"I32", 32},    {"F32", 32},
      {"U64", 64}, {"I64", 64}, {"F64", 64},  {"C64", 64}};
  for (const auto& [name, bits] : kTypes) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

// Quotes and shortens a name from the file for a message.
std::string Quoted(absl::string_view name) {
  constexpr size_t kLongest = 120;
  return absl::StrCat("tensor \"", absl::CHexEscape(name.substr(0, kLongest)),
                      name.size() > kLongest ? "...\"" : "\"");
}

// Returns the format of weights of this type, if it is one.
std::optional<WeightFormat> FormatNamed(absl::string_view dtype) {
  if (dtype == "F32") return WeightFormat::kF32;
  if (dtype == "F16") return WeightFormat::kF16;
  if (dtype == "BF16") return WeightFormat::kBF16;
  return std::nullopt;
}

// Returns the number of elements of a shape, or nullopt if it overflows 64 bits.
std::optional<uint64_t> Elements(const std::vector<int64_t>& shape) {
  // A size of 0 makes the tensor empty, even if the product of the other sizes overflows.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  uint64_t elements = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements)) {
      return std::nullopt;
    }
  }
  return elements;
}

// Appends the elements of an array. Returns false at the first one that is not an integer >= 0, or
// is larger than a `T` can be.
template <typename T>
bool ReadIntegers(const JsonValue& array, std::vector<T>* integers) {
  const absl::Status visited = array.ForEachElement([&](JsonValue element) {
    const auto integer = element.UInt();
    if (!integer || *integer > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      return absl::InvalidArgumentError("");
    }
    integers->push_back(static_cast<T>(*integer));
    return absl::OkStatus();
  });
  return visited.ok();
}

// Parses one entry of the header's JSON. Returns the fault of the entry, or "" if it has none. Sets
// `tensor->offset` relative to the first tensor byte, not to the file.
std::string ParseTensor(const JsonValue& value, WeightTensor* tensor) {
  if (!value.IsObject()) return "is not an object";
  std::string fault;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  // Stops at the first fault.
  const absl::Status visited = value.ForEachMember([&](absl::string_view key, JsonValue field) {
    if (key == "dtype") {
      const auto dtype = field.String();
      if (has_dtype || !dtype) {
        fault = "dtype is not one string";
      } else {
        tensor->type = std::string(*dtype);
        tensor->format = FormatNamed(*dtype);
        has_dtype = true;
      }
    } else if (key == "shape") {
      if (has_shape || !field.IsArray()) {
        fault = "shape is not one list";
      } else if (!ReadIntegers(field, &tensor->shape)) {
        fault = "shape holds something else than integers >= 0";
      }
      has_shape = true;
    } else if (key == "data_offsets") {
      std::vector<uint64_t> range;
      if (has_offsets || !field.IsArray() || !ReadIntegers(field, &range) || range.size() != 2) {
        fault = "data_offsets is not a list of two integers >= 0";
      } else if (range[0] > range[1]) {
        fault =
            absl::StrCat("data_offsets begin at ", range[0], " and end before that, at ", range[1]);
      } else {
        tensor->offset = range[0];
        tensor->bytes = range[1] - range[0];
      }
      has_offsets = true;
    } else {
      fault = absl::StrCat("has the unknown key \"", absl::CHexEscape(key), "\"");
    }
    return fault.empty() ? absl::OkStatus() : absl::InvalidArgumentError(fault);
  });
  if (!visited.ok()) return fault;
  if (!has_dtype) return "has no dtype";
  if (!has_shape) return "has no shape";
  if (!has_offsets) return "has no data_offsets";
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(mapped)));
  RETURN_IF_ERROR(file->ReadHeader());
  RETURN_IF_ERROR(file->CheckExtents());
  return file;
}

absl::Status SafetensorsFile::Bad(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": ", what));
}

absl::Status SafetensorsFile::ReadHeader() {
  const uint64_t size = file_->size();
  if (size < kLengthBytes) {
    return Bad(absl::StrCat("has ", size, " bytes; expected at least the ", kLengthBytes,
                            " of a header length: it was cut short, fetch it again"));
  }
  unsigned char length[kLengthBytes];
  RETURN_IF_ERROR(file_->Read(0, length, kLengthBytes));
  uint64_t header_bytes = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) header_bytes = header_bytes << 8 | length[i];
  const uint64_t room = std::min(size - kLengthBytes, kMaxHeaderBytes);
  if (header_bytes > room) {
    if (file_->IsLfsPointer()) {
      return absl::InvalidArgumentError(LfsPointerMessage(file_->path()));
    }
    return Bad(absl::StrCat(
        "header length is ", header_bytes, "; expected at most ", room, " in a file of ", size,
        " bytes: it was cut short or is not a safetensors file, fetch it again"));
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(file_->Read(kLengthBytes, header.data(), header_bytes));
  data_begin_ = kLengthBytes + header_bytes;
  if (header.empty() || header.front() != '{') {
    return Bad(absl::StrCat("header of ", header_bytes, " bytes does not begin with '{'"));
  }
  return ReadTensors(header);
}

absl::Status SafetensorsFile::ReadTensors(absl::string_view header) {
  const auto text = JsonText::Parse(header);
  if (!text.ok()) {
    return Bad(absl::StrCat("header is not a JSON object: ", text.status().message()));
  }
  bool has_metadata = false;
  return (*text)->root().ForEachMember([&](absl::string_view name, JsonValue value) {
    if (name == "__metadata__") {
      if (has_metadata || !value.IsObject()) return Bad("__metadata__ is not one object");
      has_metadata = true;
      return absl::OkStatus();
    }
    return AddTensor(name, value);
  });
}

absl::Status SafetensorsFile::AddTensor(absl::string_view name, const JsonValue& value) {
  WeightTensor tensor{.file = file_.get()};
  if (const std::string wrong = ParseTensor(value, &tensor); !wrong.empty()) {
    return Bad(absl::StrCat(Quoted(name), " ", wrong));
  }
  const uint64_t data_bytes = file_->size() - data_begin_;
  if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
    return Bad(absl::StrCat(Quoted(name), " lies at [", tensor.offset, ", ",
                            tensor.offset + tensor.bytes, ") of the data; expected inside its ",
                            data_bytes, " bytes: the file, of ", file_->size(),
                            " bytes, was cut short, fetch it again"));
  }
  const auto elements = Elements(tensor.shape);
  uint64_t bits = 0;
  if (const auto element_bits = DtypeBits(tensor.type);
      !elements || (element_bits && __builtin_mul_overflow(*elements, *element_bits, &bits))) {
    return Bad(absl::StrCat(Quoted(name), " has shape [", absl::StrJoin(tensor.shape, ", "),
                            "], more elements than 64 bits can count"));
  } else if (element_bits && bits / 8 != tensor.bytes) {
    return Bad(absl::StrCat(Quoted(name), " has ", tensor.bytes, " bytes; expected ", bits / 8,
                            " for ", tensor.type, " [", absl::StrJoin(tensor.shape, ", "), "]"));
  }
  tensor.offset += data_begin_;
  if (!tensors_.emplace(std::string(name), std::move(tensor)).second) {
    return Bad(absl::StrCat(Quoted(name), " occurs twice"));
  }
  return absl::OkStatus();
}

// Checks that tensors neither overlap nor leave a gap between each other, before the first or after
// the last one. The format demands this.
absl::Status SafetensorsFile::CheckExtents() const {
  std::vector<const std::pair<const std::string, WeightTensor>*> order;
  order.reserve(tensors_.size());
  for (const auto& tensor : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  uint64_t next = data_begin_;
  for (const auto* tensor : order) {
    if (tensor->second.offset != next) {
      return Bad(absl::StrCat(Quoted(tensor->first), " begins at byte ",
                              tensor->second.offset - data_begin_, " of the data, ",
                              tensor->second.offset < next ? "inside" : "with a gap after",
                              " the tensor before it; expected ", next - data_begin_));
    }
    next += tensor->second.bytes;
  }
  if (next != file_->size()) {
    return Bad(absl::StrCat("has ", file_->size() - data_begin_, " bytes of data; expected ",
                            next - data_begin_, " as its tensors end there"));
  }
  return absl::OkStatus();
}

}  // namespace baton
