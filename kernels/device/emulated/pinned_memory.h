#pragma once

#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// The host memory that counts as pinned for the emulated device. Not synchronised.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Allocates pinned memory, aligned to 4096. Returns ResourceExhausted if the machine has none
  // left.
  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  // Pins memory that the caller owns. Returns FailedPrecondition if some of it is pinned already.
  absl::Status Pin(std::byte* memory, size_t bytes);
  // Free undoes Allocate, and Unpin undoes Pin. Both abort on any other pointer.
  void Free(std::byte* memory);
  void Unpin(std::byte* memory);

  // Returns true if the `bytes` bytes from `at` on are all pinned.
  bool Holds(const void* at, size_t bytes) const;

 private:
  struct Piece {
    size_t bytes;
    bool own;
  };
  void Remove(std::byte* memory, bool own);

  std::map<std::byte*, Piece> pieces_;  // key: address
};

}  // namespace baton
