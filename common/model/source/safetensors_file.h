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

class JsonValue;

// Description of one tensor in the header of a safetensors file.
struct SafetensorsEntry {
  std::string dtype;           // as spelled in the file: "BF16", "F32", ...
  std::vector<int64_t> shape;  // each >= 0
  uint64_t offset = 0;         // file offset of the tensor's first byte
  uint64_t bytes = 0;
};

// A safetensors file (github.com/huggingface/safetensors, "Format"), mapped read-only. Open trusts
// nothing in the file: it checks the header's length and JSON, and every name, shape and extent.
// For element types of known size, the extent must fit the shape. Immutable.
//
// The mapping always shows the current file. If a file is truncated while a process uses it, the
// process dies (SIGBUS). So loaders call CheckUnchanged() after the last read, and a model must be
// replaced by renaming a folder, never by writing into it.
class SafetensorsFile {
 public:
  // The same limit as in the safetensors library (MAX_HEADER_SIZE).
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Returns NotFound if the file does not exist, and InvalidArgument if it is damaged. The message
  // names the file, the tensor, what was found and what was expected.
  static absl::StatusOr<std::unique_ptr<const SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }

  // Returns the mapped bytes of one of this file's entries. They may begin at any address, however
  // aligned.
  absl::Span<const std::byte> Bytes(const SafetensorsEntry& entry) const;

  // Reads all bytes of an entry into memory (page_in.h), so that the page cache holds them. Returns
  // DataLoss if the file no longer has them.
  absl::Status PageIn(const SafetensorsEntry& entry, const PageInStep& step) const;

  // Copies `bytes` bytes at `offset` to `out` without touching the mapping. Returns DataLoss if the
  // file no longer has them.
  absl::Status Read(uint64_t offset, void* out, size_t bytes) const;

  // Returns true if the file lies in a memory file system (tmpfs). Mapping such a file needs no
  // additional memory.
  bool InMemory() const;

  // Returns FailedPrecondition if the file's size or modification time has changed since Open.
  absl::Status CheckUnchanged() const;

 private:
  SafetensorsFile(std::string path, int fd);
  absl::Status Map();
  absl::Status ReadHeader();
  absl::Status ReadEntries(absl::string_view header);
  absl::Status AddEntry(absl::string_view name, const JsonValue& value);
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
