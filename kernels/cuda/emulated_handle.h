#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/ipc_handle.h"

namespace baton {

// The body of a handle of the emulated device. Its bytes are found through /proc, so nothing of it
// is left when its process ends.
struct EmulatedHandle {
  int32_t device = 0;              // of the node, that made it
  int32_t process = 0;             // its id
  int64_t file = 0;                // as that process calls it
  uint64_t inode = 0;              // of the file
  uint64_t offset = 0, bytes = 0;  // of memory, in the file
};
inline constexpr char kEmulatedMaker[] = "emulated";

// The handle's file; the caller closes it. FailedPrecondition when its process is gone.
absl::StatusOr<int> OpenFileOf(const EmulatedHandle& handle);

}  // namespace baton
