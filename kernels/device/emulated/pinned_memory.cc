#include "kernels/device/emulated/pinned_memory.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {

PinnedMemory::~PinnedMemory() {
  for (const auto& [memory, piece] : pieces_) {
    if (piece.own) munmap(memory, piece.bytes);
  }
}

absl::StatusOr<std::byte*> PinnedMemory::Allocate(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("pinned memory: ", bytes, " bytes were asked for: ", strerror(errno)));
  }
  pieces_[static_cast<std::byte*>(memory)] = {bytes, true};
  return static_cast<std::byte*>(memory);
}

absl::Status PinnedMemory::Pin(std::byte* memory, size_t bytes) {
  auto after = pieces_.lower_bound(memory);
  if (after != pieces_.end() && static_cast<size_t>(after->first - memory) < bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("PinHost: of ", bytes, " bytes some are pinned already"));
  }
  if (after != pieces_.begin()) {
    const auto before = std::prev(after);
    if (static_cast<size_t>(memory - before->first) < before->second.bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat("PinHost: of ", bytes, " bytes some are pinned already"));
    }
  }
  pieces_[memory] = {bytes, false};
  return absl::OkStatus();
}

void PinnedMemory::Remove(std::byte* memory, bool own) {
  const auto it = pieces_.find(memory);
  BATON_CHECK(it != pieces_.end() && it->second.own == own)
      << memory << " was not " << (own ? "allocated pinned" : "pinned") << ", or is not any more";
  if (own) munmap(memory, it->second.bytes);
  pieces_.erase(it);
}

void PinnedMemory::Free(std::byte* memory) { Remove(memory, true); }

void PinnedMemory::Unpin(std::byte* memory) { Remove(memory, false); }

bool PinnedMemory::Holds(const void* at, size_t bytes) const {
  auto* const byte = static_cast<std::byte*>(const_cast<void*>(at));
  const auto after = pieces_.upper_bound(byte);
  if (after == pieces_.begin()) return false;
  const auto& [begin, piece] = *std::prev(after);
  const size_t offset = byte - begin;
  return offset < piece.bytes && bytes <= piece.bytes - offset;
}

}  // namespace baton
