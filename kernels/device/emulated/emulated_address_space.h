#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/emulated/emulated_handle.h"
#include "kernels/device/emulated/emulated_memory.h"
#include "kernels/device/emulated/pinned_memory.h"
#include "kernels/device/simt/memory_map.h"

namespace baton {

// All memory that the emulated device can reach: its own memory, imported memory, and pinned host
// memory. With `check` it also tracks which bytes of its own memory have not been written yet. Not
// synchronised.
class EmulatedAddressSpace {
 public:
  enum class Place { kDevice, kPinned, kPlain };  // kPlain: any other host memory

  EmulatedAddressSpace(std::unique_ptr<EmulatedMemory> device, bool check)
      : device_(std::move(device)), check_(check) {}

  // The functions from Allocate to CloseMemory do what DeviceRuntime's functions of the same names
  // do. Memory may be freed, unpinned or closed only when no pending work uses it.
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess);
  void Free(std::byte* memory);
  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes);
  void FreePinned(std::byte* memory);
  absl::Status PinHost(std::byte* memory, size_t bytes);
  void UnpinHost(std::byte* memory);
  // Leaves `device` of the returned handle unset.
  absl::StatusOr<EmulatedHandle> ExportMemory(const std::byte* memory) const;
  // `file` is the memory file of the process that exported the handle.
  absl::StatusOr<std::byte*> ImportMemory(int file, const EmulatedHandle& handle);
  void CloseMemory(std::byte* memory);

  // Returns the kind of memory that a byte range is in. Returns InvalidArgument for a range in
  // device memory that is not inside one allocation.
  absl::StatusOr<Place> Find(const void* at, size_t bytes) const;
  // Returns OK if the byte range lies inside one allocation of device memory; else InvalidArgument,
  // with a message that begins with `what`.
  absl::Status CheckDevice(absl::string_view what, const void* at, size_t bytes) const;

  bool check() const { return check_; }
  // MarkWritten marks bytes as written. CopyWritten gives the bytes at `to` the marks of the bytes
  // at `from`. Both do nothing if check() is false.
  void MarkWritten(const void* at, size_t bytes);
  void CopyWritten(const void* to, const void* from, size_t bytes);

  EmulatedMemory& device() { return *device_; }
  const EmulatedMemory& device() const { return *device_; }
  // The memory that kernels may access.
  simt::MemoryMap& map() { return map_; }

 private:
  const std::unique_ptr<EmulatedMemory> device_;
  const bool check_;
  PinnedMemory pinned_;
  simt::MemoryMap map_;
};

}  // namespace baton
