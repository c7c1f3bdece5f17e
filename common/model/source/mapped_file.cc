#include "common/model/source/mapped_file.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/lfs_pointer.h"
#include "common/model/source/folder_advice.h"

namespace baton {
namespace {

int64_t ChangedNs(const struct stat& info) {
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

}  // namespace

MappedFile::~MappedFile() {
  if (mapping_ != nullptr) munmap(const_cast<std::byte*>(mapping_), size_);
  close(fd_);
}

absl::StatusOr<std::unique_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: open must not hang if the path is a pipe.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ModelFileError(errno, path);
  std::unique_ptr<MappedFile> file(new MappedFile(path, fd));
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file->size_ = info.st_size;
  file->changed_ns_ = ChangedNs(info);
  if (file->size_ == 0) return file;
  void* mapping = mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": mmap"));
  file->mapping_ = static_cast<const std::byte*>(mapping);
  return file;
}

absl::Span<const std::byte> MappedFile::Bytes(uint64_t offset, uint64_t bytes) const {
  BATON_CHECK(offset <= size_ && bytes <= size_ - offset)
      << path_ << ": " << offset << "+" << bytes << " of " << size_;
  return {mapping_ + offset, bytes};
}

absl::Status MappedFile::PageIn(uint64_t offset, uint64_t bytes, const PageInStep& step) const {
  const absl::Status status = PageInForReading(Bytes(offset, bytes).data(), bytes, step);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path_, ": ", status.message()));
}

absl::Status MappedFile::Read(uint64_t offset, void* out, size_t bytes) const {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, path_);
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": ended at byte ", offset, "; it had ", size_, " when opened"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

bool MappedFile::InMemory() const {
  struct statfs info;
  return fstatfs(fd_, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

absl::Status MappedFile::CheckUnchanged() const {
  struct stat info;
  if (fstat(fd_, &info) != 0) return absl::ErrnoToStatus(errno, path_);
  if (static_cast<uint64_t>(info.st_size) == size_ && ChangedNs(info) == changed_ns_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path_, ": was changed while it was read; it had ", size_, " bytes and has ",
                   static_cast<int64_t>(info.st_size)));
}

bool MappedFile::IsLfsPointer() const {
  char begin[64] = {};
  const size_t bytes = std::min<size_t>(size_, sizeof(begin));
  return Read(0, begin, bytes).ok() && baton::IsLfsPointer({begin, bytes});
}

}  // namespace baton
