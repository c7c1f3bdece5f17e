#include "common/model/source/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr char kMagic[4] = {'G', 'G', 'U', 'F'};
constexpr uint64_t kDefaultAlignment = 32;

// A type of tensors (ggml.h: enum ggml_type), with the values and bytes of a block.
struct TensorType {
  uint32_t id;
  absl::string_view name;
  uint64_t block_values;
  uint64_t block_bytes;
  std::optional<WeightFormat> format;
};
constexpr TensorType kTypes[] = {
    {0, "F32", 1, 4, WeightFormat::kF32},
    {1, "F16", 1, 2, WeightFormat::kF16},
    {2, "Q4_0", 32, 18, WeightFormat::kQ4_0},
    {3, "Q4_1", 32, 20, WeightFormat::kQ4_1},
    {6, "Q5_0", 32, 22, WeightFormat::kQ5_0},
    {7, "Q5_1", 32, 24, WeightFormat::kQ5_1},
    {8, "Q8_0", 32, 34, WeightFormat::kQ8_0},
    {9, "Q8_1", 32, 36, std::nullopt},
    {10, "Q2_K", 256, 84, std::nullopt},
    {11, "Q3_K", 256, 110, std::nullopt},
    {12, "Q4_K", 256, 144, WeightFormat::kQ4_K},
    {13, "Q5_K", 256, 176, WeightFormat::kQ5_K},
    {14, "Q6_K", 256, 210, WeightFormat::kQ6_K},
    {15, "Q8_K", 256, 292, std::nullopt},
    {16, "IQ2_XXS", 256, 66, std::nullopt},
    {17, "IQ2_XS", 256, 74, std::nullopt},
    {18, "IQ3_XXS", 256, 98, std::nullopt},
    {19, "IQ1_S", 256, 50, std::nullopt},
    {20, "IQ4_NL", 32, 18, std::nullopt},
    {21, "IQ3_S", 256, 110, std::nullopt},
    {22, "IQ2_S", 256, 82, std::nullopt},
    {23, "IQ4_XS", 256, 136, std::nullopt},
    {24, "I8", 1, 1, std::nullopt},
    {25, "I16", 1, 2, std::nullopt},
    {26, "I32", 1, 4, std::nullopt},
    {27, "I64", 1, 8, std::nullopt},
    {28, "F64", 1, 8, std::nullopt},
    {29, "IQ1_M", 256, 56, std::nullopt},
    {30, "BF16", 1, 2, WeightFormat::kBF16},
    {34, "TQ1_0", 256, 54, std::nullopt},
    {35, "TQ2_0", 256, 66, std::nullopt},
    {39, "MXFP4", 32, 17, std::nullopt},
};

// Types of settings (gguf.h: enum gguf_type).
enum SettingType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Quotes and shortens a name from the file for a message.
std::string QuotedName(absl::string_view name) {
  constexpr size_t kLongest = 120;
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, kLongest)),
                      name.size() > kLongest ? "...\"" : "\"");
}

}  // namespace

// Reads the header from front to back. Keeps the first error, and returns zeros and empty texts
// after it. All numbers of a file are little-endian, as x86-64 is.
class GgufFile::Cursor {
 public:
  explicit Cursor(const MappedFile* file)
      : file_(*file), end_(std::min(file->size(), kMaxHeaderBytes)) {}

  uint64_t at() const { return at_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  void Fail(absl::string_view what) {
    if (ok()) status_ = absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", what));
  }

  template <typename T>
  T Number(absl::string_view of) {
    T number{};
    Take(&number, sizeof(number), of);
    return number;
  }

  std::string Text(uint64_t max_bytes, absl::string_view of) {
    const auto bytes = Number<uint64_t>(of);
    if (bytes > max_bytes) Fail(absl::StrCat(of, " has ", bytes, " bytes; it takes ", max_bytes));
    if (!Has(bytes, of)) return "";
    std::string text(bytes, '\0');
    Take(text.data(), bytes, of);
    return ok() ? text : "";
  }

  // Returns true if the header has room for `count` things of at least `bytes` bytes each.
  bool HasRoom(uint64_t count, uint64_t bytes, absl::string_view of) {
    if (ok() && count > (end_ - at_) / bytes) Short(of);
    return ok();
  }

 private:
  // Bytes that are read from the file at a time.
  static constexpr uint64_t kBufferBytes = 1 << 16;

  bool Has(uint64_t bytes, absl::string_view of) {
    if (ok() && bytes > end_ - at_) Short(of);
    return ok();
  }
  void Short(absl::string_view of) {
    if (end_ < file_.size()) {
      Fail(absl::StrCat(of, " ends behind the first ", end_, " bytes, the max of a header"));
    } else {
      Fail(absl::StrCat(of, " ends behind the file's ", end_,
                        " bytes: it was cut short, fetch it again"));
    }
  }
  void Take(void* out, uint64_t bytes, absl::string_view of) {
    if (!Has(bytes, of)) return;
    auto* to = static_cast<char*>(out);
    while (bytes > 0 && ok()) {
      if (at_ < begin_ || at_ >= begin_ + buffer_.size()) {
        begin_ = at_;
        buffer_.resize(std::min(kBufferBytes, end_ - at_));
        status_ = file_.Read(begin_, buffer_.data(), buffer_.size());
        if (!ok()) return;
      }
      const uint64_t part = std::min<uint64_t>(bytes, begin_ + buffer_.size() - at_);
      std::memcpy(to, buffer_.data() + (at_ - begin_), part);
      to += part;
      at_ += part;
      bytes -= part;
    }
  }

  const MappedFile& file_;
  const uint64_t end_;
  uint64_t at_ = 0;
  absl::Status status_;
  std::string buffer_;  // bytes of the file from begin_ on
  uint64_t begin_ = 0;
};

namespace {

// Reads one number, of any width.
template <typename Cursor>
GgufValue ReadNumber(Cursor* cursor, uint32_t type, absl::string_view of) {
  switch (type) {
    case kUint8:
      return int64_t{cursor->template Number<uint8_t>(of)};
    case kInt8:
      return int64_t{cursor->template Number<int8_t>(of)};
    case kUint16:
      return int64_t{cursor->template Number<uint16_t>(of)};
    case kInt16:
      return int64_t{cursor->template Number<int16_t>(of)};
    case kUint32:
      return int64_t{cursor->template Number<uint32_t>(of)};
    case kInt32:
      return int64_t{cursor->template Number<int32_t>(of)};
    case kInt64:
      return cursor->template Number<int64_t>(of);
    case kUint64: {
      const auto number = cursor->template Number<uint64_t>(of);
      if (number > uint64_t{std::numeric_limits<int64_t>::max()}) {
        cursor->Fail(absl::StrCat(of, " is ", number, "; it takes less than 2^63"));
      }
      return static_cast<int64_t>(number);
    }
    case kFloat32:
      return double{cursor->template Number<float>(of)};
    case kFloat64:
      return cursor->template Number<double>(of);
    case kBool: {
      const auto byte = cursor->template Number<uint8_t>(of);
      if (byte > 1) cursor->Fail(absl::StrCat(of, " is a bool of ", byte, "; it takes 0 or 1"));
      return byte == 1;
    }
    default:
      cursor->Fail(absl::StrCat(of, " has type ", type, ", which the format does not have"));
      return int64_t{0};
  }
}

template <typename T, typename Cursor>
GgufValue ReadNumbers(Cursor* cursor, uint32_t type, uint64_t count, absl::string_view of) {
  std::vector<T> numbers;
  numbers.reserve(count);
  while (numbers.size() < count && cursor->ok()) {
    numbers.push_back(std::get<T>(ReadNumber(cursor, type, of)));
  }
  return numbers;
}

template <typename Cursor>
GgufValue ReadArray(Cursor* cursor, absl::string_view of) {
  const auto type = cursor->template Number<uint32_t>(of);
  const auto count = cursor->template Number<uint64_t>(of);
  uint64_t bytes = 1;  // lower bound for an element
  if (type == kString || type == kUint64 || type == kInt64 || type == kFloat64) bytes = 8;
  if (type == kUint32 || type == kInt32 || type == kFloat32) bytes = 4;
  if (type == kUint16 || type == kInt16) bytes = 2;
  if (type == kArray) cursor->Fail(absl::StrCat(of, " is a list of lists, which is not read"));
  if (!cursor->HasRoom(count, bytes, of)) return int64_t{0};
  if (type == kString) {
    std::vector<std::string> texts;
    texts.reserve(count);
    while (texts.size() < count && cursor->ok()) {
      texts.push_back(cursor->Text(GgufFile::kMaxHeaderBytes, of));
    }
    return texts;
  }
  if (type == kFloat32 || type == kFloat64) return ReadNumbers<double>(cursor, type, count, of);
  if (type == kBool) return ReadNumbers<bool>(cursor, type, count, of);
  if (type > kFloat64) {
    return ReadNumber(cursor, type, of);  // which refuses the type
  }
  return ReadNumbers<int64_t>(cursor, type, count, of);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path));
  std::unique_ptr<GgufFile> file(new GgufFile(std::move(mapped)));
  RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

bool GgufFile::IsGguf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (absl::EndsWith(path, ".gguf")) return true;
  const auto file = MappedFile::Open(path);
  char magic[sizeof(kMagic)];
  return file.ok() && (*file)->size() >= sizeof(magic) &&
         (*file)->Read(0, magic, sizeof(magic)).ok() &&
         std::memcmp(magic, kMagic, sizeof(magic)) == 0;
}

absl::Status GgufFile::Bad(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": ", what));
}

absl::Status GgufFile::ReadHeader() {
  Cursor cursor(file_.get());
  const auto magic = cursor.Number<std::array<char, sizeof(kMagic)>>("the header");
  const auto version = cursor.Number<uint32_t>("the header");
  if (file_->size() >= sizeof(kMagic) && std::memcmp(magic.data(), kMagic, sizeof(kMagic)) != 0) {
    if (file_->IsLfsPointer()) {
      return absl::InvalidArgumentError(LfsPointerMessage(file_->path()));
    }
    return Bad("is no GGUF file: it does not begin with GGUF");
  }
  if (cursor.ok() && version != 2 && version != 3) {
    return Bad(absl::StrCat("is of version ", version, " of GGUF",
                            (version & 0xffff) == 0 ? " or big-endian" : "",
                            "; expected version 2 or 3, little-endian"));
  }
  const auto tensors = cursor.Number<uint64_t>("the header");
  const auto settings = cursor.Number<uint64_t>("the header");
  if (tensors > kMaxTensors || settings > kMaxSettings) {
    return Bad(absl::StrCat("has ", tensors, " tensors and ", settings,
                            " settings; it takes up to ", kMaxTensors, " and ", kMaxSettings));
  }
  for (uint64_t i = 0; i < settings && cursor.ok(); ++i) RETURN_IF_ERROR(ReadSetting(&cursor));
  for (uint64_t i = 0; i < tensors && cursor.ok(); ++i) RETURN_IF_ERROR(ReadTensor(&cursor));
  RETURN_IF_ERROR(cursor.status());
  return PlaceTensors(cursor.at());
}

absl::Status GgufFile::ReadSetting(Cursor* cursor) {
  const std::string key = cursor->Text(kMaxNameBytes, "the name of a setting");
  RETURN_IF_ERROR(cursor->status());
  const std::string of = absl::StrCat("setting ", QuotedName(key));
  const auto type = cursor->Number<uint32_t>(of);
  GgufValue value;
  if (type == kString) {
    value = cursor->Text(kMaxHeaderBytes, of);
  } else if (type == kArray) {
    value = ReadArray(cursor, of);
  } else {
    value = ReadNumber(cursor, type, of);
  }
  RETURN_IF_ERROR(cursor->status());
  if (!settings_.emplace(key, std::move(value)).second)
    return Bad(absl::StrCat(of, " occurs twice"));
  return absl::OkStatus();
}

absl::Status GgufFile::ReadTensor(Cursor* cursor) {
  const std::string name = cursor->Text(kMaxNameBytes, "the name of a tensor");
  RETURN_IF_ERROR(cursor->status());
  const std::string of = absl::StrCat("tensor ", QuotedName(name));
  WeightTensor tensor{.file = file_.get()};
  const auto dimensions = cursor->Number<uint32_t>(of);
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    cursor->Fail(
        absl::StrCat(of, " has ", dimensions, " dimensions; it takes 1 to ", kMaxDimensions));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dimensions && cursor->ok(); ++i) {
    const auto size = cursor->Number<uint64_t>(of);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements) ||
        elements > uint64_t{1} << 48) {
      cursor->Fail(
          absl::StrCat(of, " has shape [", absl::StrJoin(tensor.shape, ", "),
                       "] so far; each size is at least 1, and their product at most 2^48"));
    }
  }
  const auto type = cursor->Number<uint32_t>(of);
  tensor.offset = cursor->Number<uint64_t>(of);
  RETURN_IF_ERROR(cursor->status());
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const TensorType& one) { return one.id == type; });
  if (found == std::end(kTypes)) {
    return Bad(absl::StrCat(of, " has type ", type, ", which is none that is known"));
  }
  tensor.type = std::string(found->name);
  tensor.format = found->format;
  const auto cols = static_cast<uint64_t>(tensor.shape.back());
  if (cols % found->block_values != 0) {
    return Bad(absl::StrCat(of, " has rows of ", cols, " values; expected a multiple of ",
                            found->block_values, " for ", found->name));
  }
  tensor.bytes = elements / found->block_values * found->block_bytes;
  if (!tensors_.emplace(name, std::move(tensor)).second) {
    return Bad(absl::StrCat(of, " occurs twice"));
  }
  return absl::OkStatus();
}

// Checks where the tensors lie, and makes their offsets those of the file.
absl::Status GgufFile::PlaceTensors(uint64_t header_end) {
  uint64_t alignment = kDefaultAlignment;
  if (settings_.count("general.alignment") > 0) {
    const auto* const given = Find<int64_t>("general.alignment");
    if (given == nullptr || *given < 1 || *given > 1 << 20 ||
        !std::has_single_bit(static_cast<uint64_t>(*given))) {
      return Bad(absl::StrCat("setting \"general.alignment\" is ",
                              given == nullptr ? "no integer" : absl::StrCat(*given),
                              "; expected a power of two of at most 1048576"));
    }
    alignment = static_cast<uint64_t>(*given);
  }
  const uint64_t data_begin = (header_end + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = file_->size() > data_begin ? file_->size() - data_begin : 0;
  std::vector<std::pair<const std::string, WeightTensor>*> order;
  for (auto& tensor : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->second.offset < b->second.offset; });
  uint64_t next = 0;
  for (auto* const place : order) {
    auto& [name, tensor] = *place;
    const std::string of = absl::StrCat("tensor ", QuotedName(name));
    if (tensor.offset % alignment != 0) {
      return Bad(absl::StrCat(of, " begins at byte ", tensor.offset,
                              " of the data; expected a multiple of ", alignment));
    }
    if (tensor.offset < next) {
      return Bad(absl::StrCat(of, " begins at byte ", tensor.offset,
                              " of the data, inside of the tensor before it, which ends at ",
                              next));
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      return Bad(absl::StrCat(of, " has ", tensor.bytes, " bytes at byte ", tensor.offset,
                              " of the data; the file, of ", file_->size(), " bytes, has ",
                              data_bytes, ": it was cut short, fetch it again"));
    }
    next = tensor.offset + tensor.bytes;
    tensor.offset += data_begin;
  }
  return absl::OkStatus();
}

}  // namespace baton
