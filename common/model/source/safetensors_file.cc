#include "common/model/source/safetensors_file.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/json_value.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status_macros.h"
#include "common/model/source/folder_advice.h"

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

int64_t ChangedNs(const struct stat& info) {
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
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
// `entry->offset` relative to the first tensor byte, not to the file.
std::string ParseEntry(const JsonValue& value, SafetensorsEntry* entry) {
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
        entry->dtype = std::string(*dtype);
        has_dtype = true;
      }
    } else if (key == "shape") {
      if (has_shape || !field.IsArray()) {
        fault = "shape is not one list";
      } else if (!ReadIntegers(field, &entry->shape)) {
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
        entry->offset = range[0];
        entry->bytes = range[1] - range[0];
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

SafetensorsFile::SafetensorsFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(const_cast<std::byte*>(mapping_), file_bytes_);
  close(fd_);
}

absl::StatusOr<std::unique_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  // O_NONBLOCK: open must not hang if the path is a pipe.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ModelFileError(errno, path);
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, fd));
  RETURN_IF_ERROR(file->ReadHeader());
  RETURN_IF_ERROR(file->CheckExtents());
  RETURN_IF_ERROR(file->Map());
  return file;
}

absl::Status SafetensorsFile::Bad(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
}

absl::Status SafetensorsFile::ReadHeader() {
  struct stat info;
  if (fstat(fd_, &info) != 0) return absl::ErrnoToStatus(errno, path_);
  if (!S_ISREG(info.st_mode)) return Bad("not a regular file");
  file_bytes_ = info.st_size;
  changed_ns_ = ChangedNs(info);
  if (file_bytes_ < kLengthBytes) {
    return Bad(absl::StrCat("has ", file_bytes_, " bytes; expected at least the ", kLengthBytes,
                            " of a header length: it was cut short, fetch it again"));
  }
  unsigned char length[kLengthBytes];
  RETURN_IF_ERROR(Read(0, length, kLengthBytes));
  uint64_t header_bytes = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) header_bytes = header_bytes << 8 | length[i];
  const uint64_t room = std::min(file_bytes_ - kLengthBytes, kMaxHeaderBytes);
  if (header_bytes > room) {
    char begin[64] = {};
    const size_t begin_bytes = std::min<size_t>(file_bytes_, sizeof(begin));
    RETURN_IF_ERROR(Read(0, begin, begin_bytes));
    if (IsLfsPointer({begin, begin_bytes})) {
      return absl::InvalidArgumentError(LfsPointerMessage(path_));
    }
    return Bad(absl::StrCat(
        "header length is ", header_bytes, "; expected at most ", room, " in a file of ",
        file_bytes_, " bytes: it was cut short or is not a safetensors file, fetch it again"));
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(Read(kLengthBytes, header.data(), header_bytes));
  data_begin_ = kLengthBytes + header_bytes;
  if (header.empty() || header.front() != '{') {
    return Bad(absl::StrCat("header of ", header_bytes, " bytes does not begin with '{'"));
  }
  return ReadEntries(header);
}

absl::Status SafetensorsFile::ReadEntries(absl::string_view header) {
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
    return AddEntry(name, value);
  });
}

absl::Status SafetensorsFile::AddEntry(absl::string_view name, const JsonValue& value) {
  SafetensorsEntry entry;
  if (const std::string wrong = ParseEntry(value, &entry); !wrong.empty()) {
    return Bad(absl::StrCat(Quoted(name), " ", wrong));
  }
  const uint64_t data_bytes = file_bytes_ - data_begin_;
  if (entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset) {
    return Bad(absl::StrCat(Quoted(name), " lies at [", entry.offset, ", ",
                            entry.offset + entry.bytes, ") of the data; expected inside its ",
                            data_bytes, " bytes: the file, of ", file_bytes_,
                            " bytes, was cut short, fetch it again"));
  }
  const auto elements = Elements(entry.shape);
  uint64_t bits = 0;
  if (const auto element_bits = DtypeBits(entry.dtype);
      !elements || (element_bits && __builtin_mul_overflow(*elements, *element_bits, &bits))) {
    return Bad(absl::StrCat(Quoted(name), " has shape [", absl::StrJoin(entry.shape, ", "),
                            "], more elements than 64 bits can count"));
  } else if (element_bits && bits / 8 != entry.bytes) {
    return Bad(absl::StrCat(Quoted(name), " has ", entry.bytes, " bytes; expected ", bits / 8,
                            " for ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "), "]"));
  }
  entry.offset += data_begin_;
  if (!entries_.emplace(std::string(name), std::move(entry)).second) {
    return Bad(absl::StrCat(Quoted(name), " occurs twice"));
  }
  return absl::OkStatus();
}

// Checks that tensors neither overlap nor leave a gap between each other, before the first or after
// the last one. The format demands this.
absl::Status SafetensorsFile::CheckExtents() const {
  std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
  order.reserve(entries_.size());
  for (const auto& entry : entries_) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  uint64_t next = data_begin_;
  for (const auto* entry : order) {
    if (entry->second.offset != next) {
      return Bad(absl::StrCat(Quoted(entry->first), " begins at byte ",
                              entry->second.offset - data_begin_, " of the data, ",
                              entry->second.offset < next ? "inside" : "with a gap after",
                              " the tensor before it; expected ", next - data_begin_));
    }
    next += entry->second.bytes;
  }
  if (next != file_bytes_) {
    return Bad(absl::StrCat("has ", file_bytes_ - data_begin_, " bytes of data; expected ",
                            next - data_begin_, " as its tensors end there"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::Map() {
  void* mapping = mmap(nullptr, file_bytes_, PROT_READ, MAP_SHARED, fd_, 0);
  if (mapping == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": mmap"));
  mapping_ = static_cast<const std::byte*>(mapping);
  return absl::OkStatus();
}

absl::Span<const std::byte> SafetensorsFile::Bytes(const SafetensorsEntry& entry) const {
  BATON_CHECK(entry.offset <= file_bytes_ && entry.bytes <= file_bytes_ - entry.offset)
      << path_ << ": " << entry.offset << "+" << entry.bytes << " of " << file_bytes_;
  return {mapping_ + entry.offset, entry.bytes};
}

absl::Status SafetensorsFile::PageIn(const SafetensorsEntry& entry, const PageInStep& step) const {
  const absl::Span<const std::byte> bytes = Bytes(entry);
  const absl::Status status = PageInForReading(bytes.data(), bytes.size(), step);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path_, ": ", status.message()));
}

absl::Status SafetensorsFile::Read(uint64_t offset, void* out, size_t bytes) const {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, path_);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": ended at byte ", offset, "; it had ",
                                              file_bytes_, " when opened"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

bool SafetensorsFile::InMemory() const {
  struct statfs info;
  return fstatfs(fd_, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

absl::Status SafetensorsFile::CheckUnchanged() const {
  struct stat info;
  if (fstat(fd_, &info) != 0) return absl::ErrnoToStatus(errno, path_);
  if (static_cast<uint64_t>(info.st_size) == file_bytes_ && ChangedNs(info) == changed_ns_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path_, ": was changed while it was read; it had ", file_bytes_,
                   " bytes and has ", static_cast<int64_t>(info.st_size)));
}

}  // namespace baton
