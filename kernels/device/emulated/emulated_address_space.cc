#include "kernels/device/emulated/emulated_address_space.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<std::byte*> EmulatedAddressSpace::Allocate(size_t bytes, bool interprocess) {
  auto memory = device_->Allocate(bytes, interprocess);
  // This process does not see what other processes write to interprocess memory, so all of it
  // counts as written.
  if (memory.ok()) map_.Add(*memory, bytes, !check_ || interprocess);
  return memory;
}

void EmulatedAddressSpace::Free(std::byte* memory) {
  map_.Remove(memory);
  device_->Free(memory);
}

absl::StatusOr<std::byte*> EmulatedAddressSpace::AllocatePinned(size_t bytes) {
  auto memory = pinned_.Allocate(bytes);
  if (memory.ok()) map_.Add(*memory, bytes, /*written=*/true);
  return memory;
}

void EmulatedAddressSpace::FreePinned(std::byte* memory) {
  map_.Remove(memory);
  pinned_.Free(memory);
}

absl::Status EmulatedAddressSpace::PinHost(std::byte* memory, size_t bytes) {
  if (device_->Holds(memory)) {
    return absl::FailedPreconditionError("PinHost: this is device memory");
  }
  absl::Status status = pinned_.Pin(memory, bytes);
  if (status.ok()) map_.Add(memory, bytes, /*written=*/true);
  return status;
}

void EmulatedAddressSpace::UnpinHost(std::byte* memory) {
  map_.Remove(memory);
  pinned_.Unpin(memory);
}

absl::StatusOr<EmulatedHandle> EmulatedAddressSpace::ExportMemory(const std::byte* memory) const {
  const EmulatedMemory::Piece* const piece = device_->Own(memory);
  if (piece == nullptr) {
    return absl::InvalidArgumentError("ExportMemory: this is not what Allocate gave");
  }
  if (!piece->interprocess) {
    return absl::FailedPreconditionError(absl::StrCat(
        "ExportMemory: these ", piece->bytes, " bytes were not allocated as interprocess memory"));
  }
  return device_->Export(memory);
}

absl::StatusOr<std::byte*> EmulatedAddressSpace::ImportMemory(int file,
                                                              const EmulatedHandle& handle) {
  auto memory = device_->Map(file, handle);
  if (memory.ok() && map_.Find(*memory) == nullptr) {
    map_.Add(*memory, handle.bytes, /*written=*/true);
  }
  return memory;
}

void EmulatedAddressSpace::CloseMemory(std::byte* memory) {
  device_->Unmap(memory);
  if (!device_->Holds(memory)) map_.Remove(memory);
}

absl::StatusOr<EmulatedAddressSpace::Place> EmulatedAddressSpace::Find(const void* at,
                                                                       size_t bytes) const {
  if (device_->Holds(at)) {
    RETURN_IF_ERROR(device_->Check(at, bytes));
    return Place::kDevice;
  }
  return pinned_.Holds(at, bytes) ? Place::kPinned : Place::kPlain;
}

absl::Status EmulatedAddressSpace::CheckDevice(absl::string_view what, const void* at,
                                               size_t bytes) const {
  absl::Status status = device_->Check(at, bytes);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(what, status.message()));
}

void EmulatedAddressSpace::MarkWritten(const void* at, size_t bytes) {
  if (check_) map_.MarkWritten(at, bytes);
}

void EmulatedAddressSpace::CopyWritten(const void* to, const void* from, size_t bytes) {
  if (check_) map_.CopyWritten(to, from, bytes);
}

}  // namespace baton
