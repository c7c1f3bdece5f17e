#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_pages.h"

namespace baton {

// Memory of the emulated device: a file without a name, mapped so that every access faults unless
// the memory is open, which it is while device work runs. Other processes can map pieces of it; it
// goes with the last process that has it. Not synchronised.
class EmulatedMemory {
 public:
  // What Allocate gave or Map mapped.
  struct Piece {
    size_t bytes = 0;
    size_t mapped_bytes = 0;  // whole pages; an own piece has a margin in them, of a known pattern
    bool interprocess = false;
    int uses = 1;  // how often it was imported
    // Of another process: where its bytes come from, and its pages. Null for an own piece.
    uint64_t inode = 0, offset = 0;
    std::unique_ptr<DevicePages> pages;
  };
  using Pieces = std::map<std::byte*, Piece>;  // by address

  static absl::StatusOr<std::unique_ptr<EmulatedMemory>> Create(size_t bytes);
  ~EmulatedMemory();

  // Own memory that is not allocated; holes may make the largest piece smaller.
  size_t free_bytes() const { return free_bytes_; }
  // Aligned to 4096; every byte is 0xff, which is NaN in every type of float. ResourceExhausted.
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess);
  // Dies on what Allocate did not give.
  void Free(std::byte* memory);

  // Whether `at` is in the device's range of addresses, allocated or not.
  bool Holds(const void* at) const;
  // OK when all of the run is in one piece, else InvalidArgument.
  absl::Status Check(const void* at, size_t bytes) const;
  // The own piece that begins there, or null.
  const Piece* Own(const std::byte* begin) const;

  // For other processes: the file, and where a piece is in it.
  int file() const { return file_; }
  uint64_t inode() const { return inode_; }
  uint64_t OffsetOf(const std::byte* begin) const { return begin - base_; }
  // Maps a piece of another process's memory; the same once more if it is mapped already.
  absl::StatusOr<std::byte*> Map(int file, uint64_t inode, uint64_t offset, size_t bytes);
  // Dies on what Map did not give.
  void Unmap(std::byte* memory);

  // In pairs, nested as needed.
  void Open();
  void Close();
  // Open only. Internal, naming the piece, when something has been written right after its end.
  absl::Status CheckMargins();

 private:
  EmulatedMemory() = default;
  void Protect(int protection);

  int file_ = -1;
  uint64_t inode_ = 0;
  std::byte* base_ = nullptr;
  size_t total_bytes_ = 0, free_bytes_ = 0;
  int open_ = 0;
  Pieces pieces_;
  std::unique_ptr<DevicePages> pages_;
};

// Open as long as it lives.
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
