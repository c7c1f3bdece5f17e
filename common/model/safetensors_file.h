#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/page_in.h"

namespace baton {

// What the header of a safetensors file says of one tensor.
struct SafetensorsEntry {
  std::string dtype;           // as the file spells it: "BF16", "F32", ...
  std::vector<int64_t> shape;  // each >= 0
  uint64_t offset = 0;         // of its first byte, from the start of the file
  uint64_t bytes = 0;
};

// A safetensors file (github.com/huggingface/safetensors, "Format"), mapped read-only. Nothing in
// it is believed: the header's length and JSON, every name, shape, and extent are checked at
// Open, and for element types of known size that the extent is what the shape needs. Immutable.
//
// The mapping shows the file as it is. Whoever truncates it while a process uses it takes that
// process down (SIGBUS), so loaders call CheckUnchanged() when they are done, and replace models by
// renaming a folder, never by writing into one.
class SafetensorsFile {
 public:
  // The library's own limit (MAX_HEADER_SIZE).
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // NotFound for no such file; InvalidArgument names file, tensor, found and expected.
  static absl::StatusOr<std::unique_ptr<const SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }

  // The bytes of one of this file's entries, in the mapping; at any alignment.
  absl::Span<const std::byte> Bytes(const SafetensorsEntry& entry) const;

  // Reads all of an entry's bytes into memory (page_in.h), where the page cache keeps them.
  // DataLoss where the file no longer has them.
  absl::Status PageIn(const SafetensorsEntry& entry, const PageInStep& step) const;

  // Copies `bytes` bytes at `offset` to `out` without touching the mapping. DataLoss where the file
  // no longer has them.
  absl::Status Read(uint64_t offset, void* out, size_t bytes) const;

  // Whether the file lies in a file system of memory (tmpfs): mapped, it takes no more of it.
  bool InMemory() const;

  // FailedPrecondition when the file's size or time of change is not what it was at Open.
  absl::Status CheckUnchanged() const;

 private:
  SafetensorsFile(std::string path, int fd);
  absl::Status Map();
  absl::Status ReadHeader();
  absl::Status ReadEntries(absl::string_view header);
  absl::Status CheckExtents() const;
  absl::Status Bad(absl::string_view what) const;

  const std::string path_;
  const int fd_;
  uint64_t file_bytes_ = 0;
  int64_t changed_ns_ = 0;
  uint64_t data_begin_ = 0;  // offset of the first tensor byte
  const std::byte* mapping_ = nullptr;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace baton
