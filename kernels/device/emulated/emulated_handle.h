#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device/runtime/ipc_handle.h"

namespace baton {

// The emulated device's part of a handle. Another process finds the exported bytes through /proc,
// so nothing is left behind when the exporting process ends.
struct EmulatedHandle {
  int32_t device = 0;   // index, in the node, of the exporting device
  int32_t process = 0;  // id of the exporting process
  int64_t file = 0;     // file descriptor in the exporting process
  uint64_t inode = 0;   // inode of that file
  // These fields are set only for memory. `offset` is the place of the exported memory in the file.
  // `generation` is a number that no other allocation in the file has. The number that the file
  // holds at `generation_at` belongs to the memory that lies at `offset` now: it differs from
  // `generation` if the exported memory was freed.
  uint64_t offset = 0, bytes = 0, generation = 0, generation_at = 0;
};
inline constexpr char kEmulatedMaker[] = "emulated";

// Opens the handle's file; the caller closes it. Returns FailedPrecondition if the exporting
// process is gone.
absl::StatusOr<int> OpenFileOf(const EmulatedHandle& handle);

}  // namespace baton
