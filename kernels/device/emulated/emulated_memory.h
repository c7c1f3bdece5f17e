#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/emulated/device_pages.h"
#include "kernels/device/emulated/emulated_handle.h"

namespace baton {

// Memory of the emulated device: a file without a name, mapped so that every access faults unless
// the memory is open. It is open while device work runs. Other processes can map pieces of it. The
// memory lives until the last process that maps it ends. Not synchronised.
class EmulatedMemory {
 public:
  // An allocated or mapped piece of memory.
  struct Piece {
    size_t bytes = 0;
    size_t mapped_bytes = 0;  // whole pages; they include a margin filled with a known pattern
    bool interprocess = false;
    uint64_t generation = 0;  // unique among the pieces of one file
    // The fields below are only for imported memory, which belongs to another process. `process`
    // exported it. `inode` and `offset` are its place in that process's file. `current` points to
    // the generation of the memory that lies at this place now. `pages` explains crashes of the
    // host in this memory. `current` and `pages` are null for memory of this process.
    int uses = 1;  // number of times it was imported
    int process = 0;
    uint64_t inode = 0, offset = 0;
    const uint64_t* current = nullptr;
    std::unique_ptr<DevicePages> pages;
  };
  using Pieces = std::map<std::byte*, Piece>;  // key: address

  static absl::StatusOr<std::unique_ptr<EmulatedMemory>> Create(size_t bytes);
  ~EmulatedMemory();

  // Returns the bytes that an allocation takes up: whole pages, with a margin.
  static size_t AllocationBytes(size_t bytes);
  // Number of bytes of this process's memory that are not allocated. If they lie in several holes,
  // the largest possible allocation is smaller.
  size_t free_bytes() const { return free_bytes_; }
  // Allocates memory aligned to 4096. Every byte is 0xff, which is NaN in every type of float.
  // Returns ResourceExhausted if no hole is large enough.
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess);
  // Frees memory from Allocate. Aborts on any other pointer.
  void Free(std::byte* memory);

  // Returns true if `at` is in the device's address range, allocated or not, or in an imported
  // piece.
  bool Holds(const void* at) const;
  // Returns OK if the `bytes` bytes from `at` on lie within one allocation, own or imported, else
  // InvalidArgument.
  absl::Status Check(const void* at, size_t bytes) const;
  // Returns the allocation of this process that begins at `begin`, or null.
  const Piece* Own(const std::byte* begin) const;

  // Returns a handle that lets other processes map the piece. Does not set the handle's `device`.
  EmulatedHandle Export(const std::byte* begin) const;
  // Maps a piece, which is one allocation of another process. `file` is that process's memory file.
  // Mapping a piece again gives the same address and counts one more use. Returns
  // FailedPrecondition if the piece no longer exists.
  absl::StatusOr<std::byte*> Map(int file, const EmulatedHandle& handle);
  // Undoes one call of Map, which returned `memory`. Aborts on any other pointer.
  void Unmap(std::byte* memory);

  // Open() makes the memory accessible until the matching Close(). The pairs may be nested.
  void Open();
  void Close();
  // Requires that the memory is open. Returns Internal, naming the piece, if the bytes right after
  // the end of a piece were written, by this process or by another one that shares the piece.
  absl::Status CheckMargins();

 private:
  EmulatedMemory() = default;
  void Protect(int protection);
  // Write to own memory through its file. This is faster than Open() and Close(), which change all
  // pages. Wipe fills memory with the byte of new memory.
  void Write(const std::byte* to, const uint8_t* from, size_t bytes);
  void Wipe(const std::byte* begin, size_t bytes);
  static void UnmapPiece(std::byte* begin, const Piece& piece);

  int file_ = -1;
  uint64_t inode_ = 0;
  std::byte* base_ = nullptr;
  size_t total_bytes_ = 0, free_bytes_ = 0;
  // Table that follows the memory in the file. For each page, the table holds the generation of the
  // piece that begins at the page, or 0.
  uint64_t* generations_ = nullptr;
  uint64_t last_generation_ = 0;
  int open_ = 0;
  Pieces pieces_;
  std::unique_ptr<DevicePages> pages_;
};

// Keeps the memory of the emulated device accessible ("open") while this object lives.
class OpenMemory {
 public:
  explicit OpenMemory(EmulatedMemory* memory) : memory_(memory) { memory_->Open(); }
  ~OpenMemory() { memory_->Close(); }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

 private:
  EmulatedMemory* const memory_;
};

}  // namespace baton
