#include "common/base/page_in.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace baton {
namespace {

constexpr uintptr_t kPage = 4096;
constexpr size_t kWritePiece = 16 << 20;
// Bytes that are read between two reports of progress. Small enough that even a slow disk or
// network reads several such pieces a second.
constexpr size_t kReadPiece = 4 << 20;
// Bytes of read-ahead that the kernel is asked for beyond the current piece.
constexpr size_t kReadAhead = 64 << 20;

// The whole pages that contain a range of bytes.
struct Pages {
  Pages(const std::byte* data, size_t size)
      : begin(reinterpret_cast<uintptr_t>(data) / kPage * kPage),
        end((reinterpret_cast<uintptr_t>(data) + size + kPage - 1) / kPage * kPage) {}
  uintptr_t begin, end;
};

// Calls madvise() with `advice` for the `bytes` bytes at `at`. Returns false if the kernel does not
// know this advice.
bool Populate(uintptr_t at, size_t bytes, int advice, int* error) {
  while (madvise(reinterpret_cast<void*>(at), bytes, advice) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    *error = errno;
    return errno != EINVAL;
  }
  *error = 0;
  return true;
}

}  // namespace

absl::Status PageInForWriting(std::byte* data, size_t bytes, const PageInStep& step) {
  if (bytes == 0) return absl::OkStatus();
  const Pages pages(data, bytes);
  for (uintptr_t at = pages.begin; at < pages.end; at += kWritePiece) {
    if (step) {
      RETURN_IF_ERROR(step(std::min<uint64_t>(at - pages.begin, bytes)));
    }
    const size_t piece = std::min<size_t>(kWritePiece, pages.end - at);
    int error = 0;
    if (!Populate(at, piece, MADV_POPULATE_WRITE, &error)) {
      for (uintptr_t page = at; page < at + piece; page += kPage) {
        __atomic_fetch_or(reinterpret_cast<unsigned char*>(page), 0, __ATOMIC_RELAXED);
      }
    } else if (error != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there is no memory for byte ", at - pages.begin, " of ", bytes, ": ",
                       error == EFAULT ? "the file system that holds it is full (/dev/shm?)"
                                       : std::strerror(error)));
    }
  }
  return step ? step(bytes) : absl::OkStatus();
}

absl::Status PageInForReading(const std::byte* data, size_t bytes, const PageInStep& step) {
  if (bytes == 0) return absl::OkStatus();
  const Pages pages(data, bytes);
  uintptr_t ahead = pages.begin;
  for (uintptr_t at = pages.begin; at < pages.end; at += kReadPiece) {
    if (step) {
      RETURN_IF_ERROR(step(std::min<uint64_t>(at - pages.begin, bytes)));
    }
    if (ahead < pages.end && ahead < at + kReadAhead / 2) {
      const size_t more = std::min<size_t>(kReadAhead, pages.end - ahead);
      // The kernel takes this call only as advice, so its errors are ignored.
      madvise(reinterpret_cast<void*>(ahead), more, MADV_WILLNEED);
      ahead += more;
    }
    const size_t piece = std::min<size_t>(kReadPiece, pages.end - at);
    int error = 0;
    if (!Populate(at, piece, MADV_POPULATE_READ, &error)) {
      for (uintptr_t page = at; page < at + piece; page += kPage) {
        (void)*reinterpret_cast<const volatile unsigned char*>(page);
      }
    } else if (error != 0) {
      return absl::DataLossError(absl::StrCat(
          "could not be read from byte ", at - pages.begin, " of ", bytes, " onwards: ",
          error == EFAULT ? "the file became shorter, or its disk fails" : std::strerror(error)));
    }
  }
  return step ? step(bytes) : absl::OkStatus();
}

}  // namespace baton
