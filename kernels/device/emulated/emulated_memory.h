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
// the memory is open, which it is while device work runs. Other processes can map pieces of it; it
// goes with the last process that has it. Not synchronised.
class EmulatedMemory {
 public:
  // What Allocate gave or Map mapped.
  struct Piece {
    size_t bytes = 0;
    size_t mapped_bytes = 0;  // whole pages, with a margin in them of a known pattern
    bool interprocess = false;
    uint64_t generation = 0;  // no two pieces of a file have the same
    // For a piece of another process: the process, the files that its bytes and its generation are
    // read from, and its pages. Null for a piece of our own.
    int uses = 1;  // how often it was imported
    int process = 0;
    uint64_t inode = 0, offset = 0;
    const uint64_t* current = nullptr;
    std::unique_ptr<DevicePages> pages;
  };
  using Pieces = std::map<std::byte*, Piece>;  // by address

  static absl::StatusOr<std::unique_ptr<EmulatedMemory>> Create(size_t bytes);
  ~EmulatedMemory();

  // What an allocation takes of it: whole pages, with a margin.
  static size_t AllocationBytes(size_t bytes);
  // Own memory that is not allocated; holes may make the largest piece smaller.
  size_t free_bytes() const { return free_bytes_; }
  // Aligned to 4096; every byte is 0xff, which is NaN in every type of float. ResourceExhausted.
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess);
  // Dies on what Allocate did not give.
  void Free(std::byte* memory);

  // Whether `at` is in the device's range of addresses, allocated or not.
  bool Holds(const void* at) const;
  // OK if all of these bytes lie in one piece, else InvalidArgument.
  absl::Status Check(const void* at, size_t bytes) const;
  // The own piece that begins there, or null.
  const Piece* Own(const std::byte* begin) const;

  // An own piece for other processes; the device is left out.
  EmulatedHandle Export(const std::byte* begin) const;
  // Maps a piece of another process's memory. `file` is that process's memory file. A piece that is
  // mapped already gives the same address, and is counted once more. FailedPrecondition if the
  // piece does not exist any longer.
  absl::StatusOr<std::byte*> Map(int file, const EmulatedHandle& handle);
  // Dies on what Map did not give.
  void Unmap(std::byte* memory);

  // In pairs, nested as needed.
  void Open();
  void Close();
  // Open only. Internal, naming the piece, when something has been written right after its end, by
  // this process or, if it shares the piece, by another.
  absl::Status CheckMargins();

 private:
  EmulatedMemory() = default;
  void Protect(int protection);
  static void UnmapPiece(std::byte* begin, const Piece& piece);

  int file_ = -1;
  uint64_t inode_ = 0;
  std::byte* base_ = nullptr;
  size_t total_bytes_ = 0, free_bytes_ = 0;
  // Behind the memory in its file: the generation of the piece that begins at each page, or 0.
  uint64_t* generations_ = nullptr;
  uint64_t last_generation_ = 0;
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
