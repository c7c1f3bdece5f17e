#include "kernels/cuda/emulated_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kPage = 4096;
// After each piece, so that a kernel that goes on too far is found out.
constexpr size_t kMargin = 256;
constexpr uint8_t kUnwrittenByte = 0xff;
// Freed pieces of up to this size are filled like new ones; larger ones give their pages back and
// read as 0.
constexpr size_t kMostFilled = 1 << 20;

// What a margin that begins there holds: 0xffa5 in every aligned 16 bits, which is NaN in bf16, f16
// and f32, and is not what new memory holds.
const uint8_t* Margin(const std::byte* begin) {
  static const auto* const pattern = [] {
    static uint8_t bytes[kMargin + 1];
    for (size_t i = 0; i <= kMargin; ++i) bytes[i] = i % 2 == 0 ? 0xa5 : 0xff;
    return bytes;
  }();
  return pattern + reinterpret_cast<uintptr_t>(begin) % 2;
}

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

absl::Status SystemError(absl::string_view call) {
  return absl::InternalError(absl::StrCat("emulated device memory: ", call, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedMemory>> EmulatedMemory::Create(size_t bytes) {
  if (bytes == 0 || bytes > (size_t{1} << 46)) {
    return absl::InvalidArgumentError(
        absl::StrCat("emulated device memory of ", bytes, " bytes; 1 to 2^46 can be had"));
  }
  std::unique_ptr<EmulatedMemory> memory(new EmulatedMemory);
  memory->total_bytes_ = memory->free_bytes_ = WholePages(bytes);
  memory->file_ = memfd_create("baton-emulated-device", MFD_CLOEXEC);
  if (memory->file_ < 0) return SystemError("memfd_create");
  if (ftruncate(memory->file_, memory->total_bytes_) != 0) return SystemError("ftruncate");
  struct stat about;
  if (fstat(memory->file_, &about) != 0) return SystemError("fstat");
  memory->inode_ = about.st_ino;
  void* const base =
      mmap(nullptr, memory->total_bytes_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, memory->file_, 0);
  if (base == MAP_FAILED) return SystemError("mmap");
  memory->base_ = static_cast<std::byte*>(base);
  memory->pages_ = std::make_unique<DevicePages>(memory->base_, memory->total_bytes_);
  return memory;
}

EmulatedMemory::~EmulatedMemory() {
  for (auto& [begin, piece] : pieces_) {
    if (piece.pages != nullptr) munmap(begin, piece.mapped_bytes);
  }
  if (base_ != nullptr) munmap(base_, total_bytes_);
  if (file_ >= 0) close(file_);
}

absl::StatusOr<std::byte*> EmulatedMemory::Allocate(size_t bytes, bool interprocess) {
  const size_t wanted = bytes > total_bytes_ ? bytes : WholePages(bytes + kMargin);
  std::byte* begin = base_;
  for (const auto& [taken, piece] : pieces_) {  // by address: the first hole that fits
    if (piece.pages != nullptr) continue;
    if (static_cast<size_t>(taken - begin) >= wanted) break;
    begin = taken + piece.mapped_bytes;
  }
  if (wanted > total_bytes_ || static_cast<size_t>(base_ + total_bytes_ - begin) < wanted) {
    return absl::ResourceExhaustedError(absl::StrCat("device memory: ", bytes,
                                                     " bytes were asked for; ", free_bytes_, " of ",
                                                     total_bytes_, " are free"));
  }
  pieces_[begin] = {.bytes = bytes, .mapped_bytes = wanted, .interprocess = interprocess};
  free_bytes_ -= wanted;
  OpenMemory open(this);
  memset(begin, kUnwrittenByte, bytes);
  memcpy(begin + bytes, Margin(begin + bytes), kMargin);
  memset(begin + bytes + kMargin, kUnwrittenByte, wanted - bytes - kMargin);
  return begin;
}

void EmulatedMemory::Free(std::byte* memory) {
  const auto it = pieces_.find(memory);
  BATON_CHECK(it != pieces_.end() && it->second.pages == nullptr)
      << "Free of " << memory << ", which was not allocated or is freed already";
  if (it->second.mapped_bytes > kMostFilled) {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, memory - base_,
              it->second.mapped_bytes);
  } else {
    OpenMemory open(this);
    memset(memory, kUnwrittenByte, it->second.mapped_bytes);
  }
  free_bytes_ += it->second.mapped_bytes;
  pieces_.erase(it);
}

bool EmulatedMemory::Holds(const void* at) const {
  const auto* const byte = static_cast<const std::byte*>(at);
  if (byte >= base_ && byte < base_ + total_bytes_) return true;
  auto it = pieces_.upper_bound(const_cast<std::byte*>(byte));
  if (it == pieces_.begin()) return false;
  --it;
  return byte < it->first + it->second.mapped_bytes;
}

absl::Status EmulatedMemory::Check(const void* at, size_t bytes) const {
  auto* const byte = static_cast<std::byte*>(const_cast<void*>(at));
  auto it = pieces_.upper_bound(byte);
  if (it != pieces_.begin()) {
    --it;
    const size_t offset = byte - it->first;
    if (offset <= it->second.bytes && bytes <= it->second.bytes - offset) return absl::OkStatus();
    if (offset < it->second.mapped_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes at ", offset, " of a piece of ",
                                                     it->second.bytes, " bytes of device memory"));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(bytes, " bytes of device memory that is not allocated"));
}

const EmulatedMemory::Piece* EmulatedMemory::Own(const std::byte* begin) const {
  const auto it = pieces_.find(const_cast<std::byte*>(begin));
  return it == pieces_.end() || it->second.pages != nullptr ? nullptr : &it->second;
}

absl::StatusOr<std::byte*> EmulatedMemory::Map(int file, uint64_t inode, uint64_t offset,
                                               size_t bytes) {
  for (auto& [begin, piece] : pieces_) {
    if (piece.pages != nullptr && piece.inode == inode && piece.offset == offset) {
      ++piece.uses;
      return begin;
    }
  }
  struct stat about;
  if (fstat(file, &about) != 0) return SystemError("fstat");
  if (about.st_ino != inode || offset % kPage != 0 ||
      static_cast<uint64_t>(about.st_size) < offset ||
      static_cast<uint64_t>(about.st_size) - offset < bytes) {
    return absl::FailedPreconditionError("the memory of this handle is not there any more");
  }
  const size_t mapped_bytes = WholePages(bytes);
  void* const at = mmap(nullptr, mapped_bytes, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_SHARED | MAP_NORESERVE, file, offset);
  if (at == MAP_FAILED) return SystemError("mmap");
  auto* const begin = static_cast<std::byte*>(at);
  Piece& piece = pieces_[begin];
  piece.bytes = bytes;
  piece.mapped_bytes = mapped_bytes;
  piece.inode = inode;
  piece.offset = offset;
  piece.pages = std::make_unique<DevicePages>(begin, mapped_bytes);
  return begin;
}

void EmulatedMemory::Unmap(std::byte* memory) {
  const auto it = pieces_.find(memory);
  BATON_CHECK(it != pieces_.end() && it->second.pages != nullptr)
      << "CloseMemory of " << memory << ", which was not imported or is closed already";
  if (--it->second.uses > 0) return;
  munmap(memory, it->second.mapped_bytes);
  pieces_.erase(it);
}

void EmulatedMemory::Protect(int protection) {
  BATON_CHECK(mprotect(base_, total_bytes_, protection) == 0) << strerror(errno);
  for (auto& [begin, piece] : pieces_) {
    if (piece.pages == nullptr) continue;
    BATON_CHECK(mprotect(begin, piece.mapped_bytes, protection) == 0) << strerror(errno);
  }
}

void EmulatedMemory::Open() {
  if (open_++ == 0) Protect(PROT_READ | PROT_WRITE);
}

void EmulatedMemory::Close() {
  if (--open_ == 0) Protect(PROT_NONE);
}

absl::Status EmulatedMemory::CheckMargins() {
  for (const auto& [begin, piece] : pieces_) {
    const std::byte* const end = begin + piece.bytes;
    if (piece.pages != nullptr || memcmp(end, Margin(end), kMargin) == 0) continue;
    return absl::InternalError(
        absl::StrCat("wrote after the end of a piece of ", piece.bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace baton
