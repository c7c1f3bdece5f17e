#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/ipc_handle.h"

namespace baton {

// The body of a handle of the emulated device. Its bytes are found through /proc, so nothing of it
// is left when its process ends.
struct EmulatedHandle {
  int32_t device = 0;   // of the node, that made it
  int32_t process = 0;  // its id
  int64_t file = 0;     // as that process calls it
  uint64_t inode = 0;   // of the file
  // Of memory, in the file; and where that says which piece lies there now.
  uint64_t offset = 0, bytes = 0, generation = 0, generation_at = 0;
};
inline constexpr char kEmulatedMaker[] = "emulated";

// The handle's file; the caller closes it. FailedPrecondition when its process is gone.
absl::StatusOr<int> OpenFileOf(const EmulatedHandle& handle);

}  // namespace baton
