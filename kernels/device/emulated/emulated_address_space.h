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

// All memory that the emulated device reaches: its own, what it imported, and pinned memory of the
// host; and, with `check`, which bytes of its own nobody has written yet. Not synchronised.
class EmulatedAddressSpace {
 public:
  enum class Place { kDevice, kPinned, kPlain };  // kPlain: the host's, as far as is known here

  EmulatedAddressSpace(std::unique_ptr<EmulatedMemory> device, bool check)
      : device_(std::move(device)), check_(check) {}

  // As the calls of DeviceRuntime that are named so. What goes is used by no work any more.
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess);
  void Free(std::byte* memory);
  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes);
  void FreePinned(std::byte* memory);
  absl::Status PinHost(std::byte* memory, size_t bytes);
  void UnpinHost(std::byte* memory);
  // The device is left out.
  absl::StatusOr<EmulatedHandle> ExportMemory(const std::byte* memory) const;
  // Of the process whose file that is.
  absl::StatusOr<std::byte*> ImportMemory(int file, const EmulatedHandle& handle);
  void CloseMemory(std::byte* memory);

  // Where a run of bytes is. InvalidArgument for one of the device's that is not in one piece.
  absl::StatusOr<Place> Find(const void* at, size_t bytes) const;
  // OK for a run in one piece of the device's; else InvalidArgument, which begins with `what`.
  absl::Status CheckDevice(absl::string_view what, const void* at, size_t bytes) const;

  bool check() const { return check_; }
  // What a copy, fill or product does to bytes: nothing is kept of it without `check`.
  void MarkWritten(const void* at, size_t bytes);
  void CopyWritten(const void* to, const void* from, size_t bytes);

  EmulatedMemory& device() { return *device_; }
  const EmulatedMemory& device() const { return *device_; }
  // What kernels may touch.
  simt::MemoryMap& map() { return map_; }

 private:
  const std::unique_ptr<EmulatedMemory> device_;
  const bool check_;
  PinnedMemory pinned_;
  simt::MemoryMap map_;
};

}  // namespace baton
