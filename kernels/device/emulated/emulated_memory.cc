#include "kernels/device/emulated/emulated_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kPage = 4096;
// Number of bytes after each piece of memory that hold a known pattern. If they change, a kernel
// wrote too far.
constexpr size_t kMargin = 256;
constexpr uint8_t kUnwrittenByte = 0xff;
// Freed pieces of up to this many bytes are filled like new memory. The pages of larger pieces are
// given back to the operating system, and read as 0.
constexpr size_t kMaxFilled = 1 << 20;

// Returns the bytes that fill a margin, which is the memory after the end of an allocation. The
// margin begins at `begin`. Every aligned 16 bits are 0xffa5, which is NaN in bf16, f16 and f32,
// and differs from the bytes of new memory.
const uint8_t* Margin(const std::byte* begin) {
  static const auto* const pattern = [] {
    static uint8_t bytes[kMargin + 1];
    for (size_t i = 0; i <= kMargin; ++i) bytes[i] = i % 2 == 0 ? 0xa5 : 0xff;
    return bytes;
  }();
  return pattern + reinterpret_cast<uintptr_t>(begin) % 2;
}

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Returns the size, in bytes, of a table with one number for each page of the device's memory. The
// number, a generation, identifies the piece of memory that begins at this page.
size_t TableBytes(size_t memory_bytes) {
  return WholePages(memory_bytes / kPage * sizeof(uint64_t));
}

absl::Status SystemError(absl::string_view call) {
  return absl::InternalError(absl::StrCat("emulated device memory: ", call, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedMemory>> EmulatedMemory::Create(size_t bytes) {
  if (bytes == 0 || bytes > (size_t{1} << 46)) {
    return absl::InvalidArgumentError(
        absl::StrCat("emulated device memory of ", bytes, " bytes; it takes 1 to 2^46"));
  }
  std::unique_ptr<EmulatedMemory> memory(new EmulatedMemory);
  memory->total_bytes_ = memory->free_bytes_ = WholePages(bytes);
  memory->file_ = memfd_create("baton-emulated-device", MFD_CLOEXEC);
  if (memory->file_ < 0) return SystemError("memfd_create");
  const size_t table_bytes = TableBytes(memory->total_bytes_);
  if (ftruncate(memory->file_, memory->total_bytes_ + table_bytes) != 0) {
    return SystemError("ftruncate");
  }
  struct stat about;
  if (fstat(memory->file_, &about) != 0) return SystemError("fstat");
  memory->inode_ = about.st_ino;
  void* const base =
      mmap(nullptr, memory->total_bytes_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, memory->file_, 0);
  if (base == MAP_FAILED) return SystemError("mmap");
  memory->base_ = static_cast<std::byte*>(base);
  void* const table = mmap(nullptr, table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file_,
                           memory->total_bytes_);
  if (table == MAP_FAILED) return SystemError("mmap");
  memory->generations_ = static_cast<uint64_t*>(table);
  memory->pages_ = std::make_unique<DevicePages>(memory->base_, memory->total_bytes_);
  return memory;
}

EmulatedMemory::~EmulatedMemory() {
  for (auto& [begin, piece] : pieces_) {
    if (piece.pages != nullptr) UnmapPiece(begin, piece);
  }
  if (generations_ != nullptr) munmap(generations_, TableBytes(total_bytes_));
  if (base_ != nullptr) munmap(base_, total_bytes_);
  if (file_ >= 0) close(file_);
}

size_t EmulatedMemory::AllocationBytes(size_t bytes) { return WholePages(bytes + kMargin); }

absl::StatusOr<std::byte*> EmulatedMemory::Allocate(size_t bytes, bool interprocess) {
  const size_t wanted = bytes > total_bytes_ ? bytes : AllocationBytes(bytes);
  std::byte* begin = base_;
  for (const auto& [taken, piece] : pieces_) {  // sorted by address: finds the first hole that fits
    if (piece.pages != nullptr) continue;
    if (static_cast<size_t>(taken - begin) >= wanted) break;
    begin = taken + piece.mapped_bytes;
  }
  if (wanted > total_bytes_ || static_cast<size_t>(base_ + total_bytes_ - begin) < wanted) {
    return absl::ResourceExhaustedError(absl::StrCat("device memory: ", bytes,
                                                     " bytes were asked for; ", free_bytes_, " of ",
                                                     total_bytes_, " are free"));
  }
  pieces_[begin] = {.bytes = bytes,
                    .mapped_bytes = wanted,
                    .interprocess = interprocess,
                    .generation = ++last_generation_};
  generations_[(begin - base_) / kPage] = last_generation_;
  free_bytes_ -= wanted;
  Wipe(begin, wanted);
  Write(begin + bytes, Margin(begin + bytes), kMargin);
  return begin;
}

void EmulatedMemory::Write(const std::byte* to, const uint8_t* from, size_t bytes) {
  const ssize_t wrote = pwrite(file_, from, bytes, static_cast<off_t>(to - base_));
  BATON_CHECK(wrote == static_cast<ssize_t>(bytes)) << strerror(errno);
}

void EmulatedMemory::Wipe(const std::byte* begin, size_t bytes) {
  static const std::vector<uint8_t> unwritten(1 << 16, kUnwrittenByte);
  for (size_t done = 0; done < bytes; done += unwritten.size()) {
    Write(begin + done, unwritten.data(), std::min(bytes - done, unwritten.size()));
  }
}

void EmulatedMemory::Free(std::byte* memory) {
  const auto it = pieces_.find(memory);
  BATON_CHECK(it != pieces_.end() && it->second.pages == nullptr)
      << "Free of " << memory << ", which was not allocated or is freed already";
  // The generation is cleared before the memory is wiped. A process that has imported this memory
  // and finds its margin changed looks at the generation, to see if the memory was freed.
  __atomic_store_n(&generations_[(memory - base_) / kPage], 0, __ATOMIC_SEQ_CST);
  if (it->second.mapped_bytes > kMaxFilled) {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, memory - base_,
              it->second.mapped_bytes);
  } else {
    Wipe(memory, it->second.mapped_bytes);
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

EmulatedHandle EmulatedMemory::Export(const std::byte* begin) const {
  const Piece& piece = pieces_.at(const_cast<std::byte*>(begin));
  EmulatedHandle handle;
  handle.process = getpid();
  handle.file = file_;
  handle.inode = inode_;
  handle.offset = begin - base_;
  handle.bytes = piece.bytes;
  handle.generation = piece.generation;
  handle.generation_at = total_bytes_ + handle.offset / kPage * sizeof(uint64_t);
  return handle;
}

absl::StatusOr<std::byte*> EmulatedMemory::Map(int file, const EmulatedHandle& handle) {
  struct stat about;
  if (fstat(file, &about) != 0) return SystemError("fstat");
  uint64_t generation = 0;
  if (about.st_ino != handle.inode || handle.generation == 0 || handle.offset % kPage != 0 ||
      handle.generation_at % sizeof(uint64_t) != 0 ||
      pread(file, &generation, sizeof(generation), static_cast<off_t>(handle.generation_at)) !=
          static_cast<ssize_t>(sizeof(generation)) ||
      generation != handle.generation) {
    return absl::FailedPreconditionError("the memory of this handle no longer exists");
  }
  for (auto& [begin, piece] : pieces_) {
    if (piece.pages == nullptr || piece.inode != handle.inode || piece.offset != handle.offset ||
        piece.generation != handle.generation) {
      continue;
    }
    ++piece.uses;
    return begin;
  }
  const size_t mapped_bytes = WholePages(handle.bytes + kMargin);
  void* const at = mmap(nullptr, mapped_bytes, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_SHARED | MAP_NORESERVE, file, handle.offset);
  if (at == MAP_FAILED) return SystemError("mmap");
  const size_t in_page = handle.generation_at % kPage;
  void* const table =
      mmap(nullptr, kPage, PROT_READ, MAP_SHARED, file, handle.generation_at - in_page);
  if (table == MAP_FAILED) {
    munmap(at, mapped_bytes);
    return SystemError("mmap");
  }
  auto* const begin = static_cast<std::byte*>(at);
  Piece& piece = pieces_[begin];
  piece.bytes = handle.bytes;
  piece.mapped_bytes = mapped_bytes;
  piece.generation = handle.generation;
  piece.process = handle.process;
  piece.inode = handle.inode;
  piece.offset = handle.offset;
  piece.current = reinterpret_cast<const uint64_t*>(static_cast<const std::byte*>(table) + in_page);
  piece.pages = std::make_unique<DevicePages>(begin, mapped_bytes);
  return begin;
}

void EmulatedMemory::UnmapPiece(std::byte* begin, const Piece& piece) {
  munmap(begin, piece.mapped_bytes);
  const auto table = reinterpret_cast<uintptr_t>(piece.current) / kPage * kPage;
  munmap(reinterpret_cast<void*>(table), kPage);
}

void EmulatedMemory::Unmap(std::byte* memory) {
  const auto it = pieces_.find(memory);
  BATON_CHECK(it != pieces_.end() && it->second.pages != nullptr)
      << "CloseMemory of " << memory << ", which was not imported or is closed already";
  if (--it->second.uses > 0) return;
  UnmapPiece(memory, it->second);
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
    if (memcmp(end, Margin(end), kMargin) == 0) continue;
    // Skips imported memory that the owning process has freed: other data may lie at its address
    // now.
    if (piece.current != nullptr &&
        __atomic_load_n(piece.current, __ATOMIC_SEQ_CST) != piece.generation) {
      continue;
    }
    return absl::InternalError(
        absl::StrCat("wrote after the end of a piece of ", piece.bytes, " bytes",
                     piece.current != nullptr ? absl::StrCat(" of process ", piece.process) : ""));
  }
  return absl::OkStatus();
}

}  // namespace baton
