#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/page_in.h"

namespace baton {

// A file of weights, mapped read-only. Immutable.
//
// The mapping always shows the current file. If a file is truncated while a process uses it, the
// process dies (SIGBUS). So loaders call CheckUnchanged() after the last read, and a model must be
// replaced by renaming, never by writing into it.
class MappedFile {
 public:
  // Returns NotFound if the file does not exist, and InvalidArgument if it is not a regular file.
  // The message says what to do (folder_advice.h).
  static absl::StatusOr<std::unique_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // Returns mapped bytes, which must lie in the file. They may begin at any address, however
  // aligned.
  absl::Span<const std::byte> Bytes(uint64_t offset, uint64_t bytes) const;
  // Reads such bytes into memory (page_in.h), so that the page cache holds them. Returns DataLoss
  // if the file no longer has them.
  absl::Status PageIn(uint64_t offset, uint64_t bytes, const PageInStep& step) const;
  // Copies `bytes` bytes at `offset` to `out` without touching the mapping. Returns DataLoss if the
  // file no longer has them.
  absl::Status Read(uint64_t offset, void* out, size_t bytes) const;

  // Returns true if the file lies in a memory file system (tmpfs). Mapping such a file needs no
  // additional memory.
  bool InMemory() const;
  // Returns FailedPrecondition if the file's size or modification time has changed since Open.
  absl::Status CheckUnchanged() const;

  // Returns true if the file begins as a pointer of Git LFS does, which stands for a file that was
  // not fetched.
  bool IsLfsPointer() const;

 private:
  MappedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  uint64_t size_ = 0;
  int64_t changed_ns_ = 0;
  const std::byte* mapping_ = nullptr;  // null for an empty file
};

}  // namespace baton
