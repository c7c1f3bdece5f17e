#include "kernels/device/cuda/cuda_memory.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"

namespace baton {
namespace {

// Memory is shared with other processes in pages of this many bytes. cudaMalloc places several
// smaller allocations in one page.
constexpr size_t kIpcPage = size_t{2} << 20;
constexpr size_t kSmallPiece = 512;
constexpr size_t kHostPage = 4096;

}  // namespace

absl::StatusOr<size_t> CudaMemory::FreeBytes() const {
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return free;
}

// The driver hands out pages of 2 MiB. Smaller allocations share a page.
size_t CudaMemory::AllocationBytes(size_t bytes, bool interprocess) {
  const size_t unit = interprocess || bytes > kIpcPage / 2 ? kIpcPage : kSmallPiece;
  return bytes > SIZE_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

absl::StatusOr<std::byte*> CudaMemory::Allocate(size_t bytes, bool interprocess) {
  const size_t room = interprocess && bytes <= SIZE_MAX - kIpcPage
                          ? (bytes + kIpcPage - 1) / kIpcPage * kIpcPage
                          : bytes;
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, room); error != cudaSuccess) {
    if (error != cudaErrorMemoryAllocation) return CudaStatus(error, "cudaMalloc");
    const absl::Status status = CudaStatus(error, "cudaMalloc");
    const auto free = FreeBytes();
    return absl::ResourceExhaustedError(
        absl::StrCat("device memory: ", room, " bytes were asked for; ", free.ok() ? *free : 0,
                     " of ", info_->total_bytes, " are free (", status.message(), ")"));
  }
  MutexLock lock(&mutex_);
  allocated_[memory] = interprocess;
  return static_cast<std::byte*>(memory);
}

void CudaMemory::Free(std::byte* memory) {
  {
    MutexLock lock(&mutex_);
    allocated_.erase(memory);
  }
  // cudaFree waits for the device. If work on the device failed, the next call that waits returns
  // the error.
  CudaStatus(cudaFree(memory), "cudaFree").IgnoreError();
}

absl::StatusOr<std::byte*> CudaMemory::AllocatePinned(size_t bytes) {
  // Allocates one page more than asked for and returns the first page boundary in it, because CUDA
  // does not guarantee any alignment.
  const size_t room = bytes <= SIZE_MAX - kHostPage ? bytes + kHostPage : bytes;
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, room, cudaHostAllocPortable);
  const absl::Status status = CudaStatus(error, "cudaHostAlloc");
  if (status.ok()) {
    const auto first = reinterpret_cast<uintptr_t>(memory);
    auto* const aligned =
        reinterpret_cast<std::byte*>((first + kHostPage - 1) / kHostPage * kHostPage);
    MutexLock lock(&mutex_);
    pinned_[aligned] = memory;
    return aligned;
  }
  if (error != cudaErrorMemoryAllocation) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat("pinned memory: ", bytes, " bytes were asked for (", status.message(), ")"));
}

void CudaMemory::FreePinned(std::byte* memory) {
  void* given = memory;
  {
    MutexLock lock(&mutex_);
    const auto it = pinned_.find(memory);
    if (it != pinned_.end()) {
      given = it->second;
      pinned_.erase(it);
    }
  }
  CudaStatus(cudaFreeHost(given), "cudaFreeHost").IgnoreError();
}

absl::Status CudaMemory::PinHost(std::byte* memory, size_t bytes) {
  const absl::Status status = CudaStatusOfOthers(
      cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister");
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("PinHost of ", bytes, " bytes: ", status.message()));
}

void CudaMemory::UnpinHost(std::byte* memory) {
  CudaStatus(cudaHostUnregister(memory), "cudaHostUnregister").IgnoreError();
}

absl::StatusOr<CudaMemoryHandle> CudaMemory::ExportMemory(const std::byte* memory) {
  {
    MutexLock lock(&mutex_);
    const auto it = allocated_.find(memory);
    if (it == allocated_.end()) {
      return absl::InvalidArgumentError("ExportMemory: this is not what Allocate gave");
    }
    if (!it->second) {
      return absl::FailedPreconditionError(
          "ExportMemory: it was not allocated as interprocess memory");
    }
  }
  CudaMemoryHandle handle;
  uuid_.copy(handle.device, sizeof(handle.device));
  const absl::Status status = CudaStatus(
      cudaIpcGetMemHandle(&handle.memory, const_cast<std::byte*>(memory)), "cudaIpcGetMemHandle");
  if (!status.ok()) return absl::FailedPreconditionError(status.message());
  return handle;
}

absl::StatusOr<std::byte*> CudaMemory::ImportMemory(const CudaMemoryHandle& handle) {
  void* memory = nullptr;
  const absl::Status status = CudaStatusOfOthers(
      cudaIpcOpenMemHandle(&memory, handle.memory, cudaIpcMemLazyEnablePeerAccess),
      "cudaIpcOpenMemHandle");
  if (status.ok()) return static_cast<std::byte*>(memory);
  return absl::FailedPreconditionError(
      absl::StrCat(info_->id, " can't reach memory of GPU-",
                   absl::BytesToHexString(absl::string_view(handle.device, sizeof(handle.device))),
                   ": ", status.message()));
}

void CudaMemory::CloseMemory(std::byte* memory) {
  CudaStatus(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle").IgnoreError();
}

}  // namespace baton
