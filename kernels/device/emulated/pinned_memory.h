#pragma once

#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// Which host memory the emulated device takes for pinned. Not synchronised.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Own memory, aligned to 4096. ResourceExhausted.
  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  // Somebody else's. FailedPrecondition where some of it is pinned already.
  absl::Status Pin(std::byte* memory, size_t bytes);
  // Of what Allocate gave, or Pin took; die on anything else.
  void Free(std::byte* memory);
  void Unpin(std::byte* memory);

  // All of the run.
  bool Holds(const void* at, size_t bytes) const;

 private:
  struct Piece {
    size_t bytes;
    bool own;
  };
  void Remove(std::byte* memory, bool own);

  std::map<std::byte*, Piece> pieces_;  // by address
};

}  // namespace baton
