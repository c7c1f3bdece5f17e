#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "kernels/device/cuda/cuda_handle.h"
#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Memory of one GPU, which must be the calling thread's current device, and pinned host memory.
// Each function does what DeviceRuntime's function of the same name does, but does not check the
// rules of captures. Thread-safe.
class CudaMemory {
 public:
  // `uuid` is the UUID of the device. `info` must outlive this object.
  CudaMemory(std::string uuid, const DeviceInfo* info) : uuid_(std::move(uuid)), info_(info) {}

  absl::StatusOr<size_t> FreeBytes() const;
  static size_t AllocationBytes(size_t bytes, bool interprocess);
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess);
  void Free(std::byte* memory);
  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes);
  void FreePinned(std::byte* memory);
  absl::Status PinHost(std::byte* memory, size_t bytes);
  void UnpinHost(std::byte* memory);
  absl::StatusOr<CudaMemoryHandle> ExportMemory(const std::byte* memory);
  absl::StatusOr<std::byte*> ImportMemory(const CudaMemoryHandle& handle);
  void CloseMemory(std::byte* memory);

 private:
  const std::string uuid_;
  const DeviceInfo* const info_;
  Mutex mutex_;
  std::map<const void*, bool> allocated_ ABSL_GUARDED_BY(mutex_);  // true: interprocess
  std::map<const void*, void*> pinned_ ABSL_GUARDED_BY(mutex_);    // value: CUDA's pointer
};

}  // namespace baton
